#include "serve/reply.h"

// /v1/responses: every block is an output item, and every event has a number.
namespace lathe::serve {

namespace {

Json responses_usage(const Usage& u) {
  return {{"input_tokens", u.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", u.cached_tokens}, {"image_tokens", u.image_tokens}}},
          {"output_tokens", u.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}},
          {"total_tokens", u.prompt_tokens + u.completion_tokens}};
}

// The one part of a block's item.
Json response_part(const Block& b, const std::string& text) {
  if (b.kind == Block::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

class ResponsesShape : public ReplyShape {
 public:
  explicit ResponsesShape(Json echoed) : echoed_(std::move(echoed)) {}

  void begin(Reply& reply, std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"})
      event(out, {{"type", type}, {"response", response(reply, "in_progress", false)}});
  }

  void block_begin(Reply& reply, int choice, int block, std::string& out) override {
    const Block& b = at(reply, choice, block);
    event(out,
          {{"type", "response.output_item.added"}, {"output_index", block}, {"item", item(b, "in_progress", true)}});
    if (b.kind != Block::Kind::kCall)
      event(out, part("response.content_part.added", b, block, {{"part", response_part(b, "")}}));
  }

  void block_text(Reply& reply, int choice, int block, std::string_view text, std::string& out) override {
    const Block& b = at(reply, choice, block);
    const Json more = {{"delta", std::string(text)}};
    switch (b.kind) {
      case Block::Kind::kReasoning:
        return event(out, part("response.reasoning_text.delta", b, block, more));
      case Block::Kind::kContent: {
        Json all = more;
        all["logprobs"] = Json::array();
        return event(out, part("response.output_text.delta", b, block, all));
      }
      case Block::Kind::kCall:
        return event(out, {{"type", "response.function_call_arguments.delta"},
                           {"item_id", item_id(b)},
                           {"output_index", block},
                           {"delta", std::string(text)}});
    }
  }

  void block_end(Reply& reply, int choice, int block, std::string& out) override {
    const Block& b = at(reply, choice, block);
    if (b.kind == Block::Kind::kReasoning)
      event(out, part("response.reasoning_text.done", b, block, {{"text", b.text}}));
    if (b.kind == Block::Kind::kContent)
      event(out, part("response.output_text.done", b, block, {{"text", b.text}, {"logprobs", Json::array()}}));
    if (b.kind != Block::Kind::kCall)
      event(out, part("response.content_part.done", b, block, {{"part", response_part(b, b.text)}}));
    if (b.kind == Block::Kind::kCall)
      event(out, {{"type", "response.function_call_arguments.done"},
                  {"item_id", item_id(b)},
                  {"output_index", block},
                  {"name", b.name},
                  {"arguments", b.text}});
    event(out, {{"type", "response.output_item.done"}, {"output_index", block}, {"item", item(b, "completed", false)}});
  }

  void end(Reply& reply, std::string& out) override {
    const bool cut = reply.choices[0].finish == FinishReason::kLength;
    event(out, {{"type", cut ? "response.incomplete" : "response.completed"}, {"response", whole(reply)}});
  }

  void failed(const Reply& reply, const ApiError& error, std::string& out) override {
    Json r = response(reply, "failed", true);
    r["error"] = {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
    event(out, {{"type", "response.failed"}, {"response", std::move(r)}});
  }

  Json whole(const Reply& reply) override {
    const bool cut = reply.choices[0].finish == FinishReason::kLength;
    Json r = response(reply, cut ? "incomplete" : "completed", true);
    if (cut) r["incomplete_details"] = {{"reason", "max_output_tokens"}};
    r["usage"] = responses_usage(reply.usage);
    return r;
  }

 private:
  static const Block& at(const Reply& reply, int choice, int block) {
    return reply.choices[static_cast<size_t>(choice)].blocks[static_cast<size_t>(block)];
  }

  // Items have ids of their own, made from the blocks'.
  static std::string item_id(const Block& b) {
    const char* prefix = b.kind == Block::Kind::kReasoning ? "rs_" : b.kind == Block::Kind::kContent ? "msg_" : "fc_";
    return prefix + b.id.substr(b.id.find('_') + 1);
  }

  static Json item(const Block& b, const char* status, bool empty) {
    const std::string text = empty ? "" : b.text;
    Json parts = Json::array();
    if (!empty) parts.push_back(response_part(b, text));
    switch (b.kind) {
      case Block::Kind::kReasoning:
        return {{"id", item_id(b)},
                {"type", "reasoning"},
                {"status", status},
                {"summary", Json::array()},
                {"content", parts}};
      case Block::Kind::kContent:
        return {{"id", item_id(b)}, {"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", parts}};
      case Block::Kind::kCall:
        break;
    }
    return {{"id", item_id(b)}, {"type", "function_call"}, {"status", status},
            {"call_id", b.id},  {"name", b.name},          {"arguments", text}};
  }

  Json part(const char* type, const Block& b, int block, const Json& more) const {
    Json e = {{"type", type}, {"item_id", item_id(b)}, {"output_index", block}, {"content_index", 0}};
    for (const auto& [key, value] : more.items()) e[key] = value;
    return e;
  }

  Json response(const Reply& reply, const char* status, bool with_output) const {
    Json r = {{"id", reply.id},
              {"object", "response"},
              {"created_at", reply.created},
              {"status", status},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"model", reply.model},
              {"output", Json::array()},
              {"usage", nullptr},
              {"store", false},
              {"previous_response_id", nullptr}};
    for (const auto& [key, value] : echoed_.items()) r[key] = value;
    if (with_output)
      for (const Block& b : reply.choices[0].blocks)
        r["output"].push_back(item(b, b.open ? "incomplete" : "completed", false));
    return r;
  }

  void event(std::string& out, Json data) {
    data["sequence_number"] = number_++;
    append_event(out, data, data["type"].get_ref<const std::string&>());
  }

  Json echoed_;
  int number_ = 0;
};

}  // namespace

std::unique_ptr<ReplyShape> make_responses_shape(Json echoed) {
  return std::make_unique<ResponsesShape>(std::move(echoed));
}

}  // namespace lathe::serve
