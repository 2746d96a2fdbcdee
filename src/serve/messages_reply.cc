#include "serve/images.h"
#include "serve/reply.h"

// /v1/messages.
namespace lathe::serve {

namespace {

// Clients send thinking back with its signature; nothing is kept here by which it would be checked.
std::string signature(const Block& b) {
  return encode_base64(fmt::format("lathe:{:x}", std::hash<std::string>{}(b.text)));
}

const char* stop_reason(const ReplyChoice& c) {
  if (c.finish == FinishReason::kLength) return "max_tokens";
  if (c.has_call()) return "tool_use";
  return c.stopped_by.empty() ? "end_turn" : "stop_sequence";
}

Json stop_sequence(const ReplyChoice& c) { return c.stopped_by.empty() ? Json(nullptr) : Json(c.stopped_by); }

Json messages_usage(const Usage& u) {
  return {{"input_tokens", u.prompt_tokens - u.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", u.cached_tokens},
          {"output_tokens", u.completion_tokens}};
}

Json input_of(const Block& b) {
  Json input = Json::parse(b.text, nullptr, false);
  return input.is_object() ? input : Json::object();
}

class MessagesShape : public ReplyShape {
 public:
  ErrorShape errors() const override { return ErrorShape::kMessages; }
  std::string_view ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  void begin(Reply& reply, std::string& out) override {
    Json message = {{"id", reply.id},           {"type", "message"},
                    {"role", "assistant"},      {"model", reply.model},
                    {"content", Json::array()}, {"stop_reason", nullptr},
                    {"stop_sequence", nullptr}, {"usage", messages_usage(reply.usage)}};
    event(out, {{"type", "message_start"}, {"message", std::move(message)}});
  }

  void block_begin(Reply& reply, int choice, int block, std::string& out) override {
    const Block& b = at(reply, choice, block);
    Json content;
    switch (b.kind) {
      case Block::Kind::kReasoning:
        content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
        break;
      case Block::Kind::kContent:
        content = {{"type", "text"}, {"text", ""}};
        break;
      case Block::Kind::kCall:
        content = {{"type", "tool_use"}, {"id", b.id}, {"name", b.name}, {"input", Json::object()}};
    }
    event(out, {{"type", "content_block_start"}, {"index", block}, {"content_block", std::move(content)}});
  }

  void block_text(Reply& reply, int choice, int block, std::string_view text, std::string& out) override {
    const std::string piece(text);
    switch (at(reply, choice, block).kind) {
      case Block::Kind::kReasoning:
        return delta(out, block, {{"type", "thinking_delta"}, {"thinking", piece}});
      case Block::Kind::kContent:
        return delta(out, block, {{"type", "text_delta"}, {"text", piece}});
      case Block::Kind::kCall:
        return delta(out, block, {{"type", "input_json_delta"}, {"partial_json", piece}});
    }
  }

  void block_end(Reply& reply, int choice, int block, std::string& out) override {
    const Block& b = at(reply, choice, block);
    if (b.kind == Block::Kind::kReasoning)
      delta(out, block, {{"type", "signature_delta"}, {"signature", signature(b)}});
    event(out, {{"type", "content_block_stop"}, {"index", block}});
  }

  void end(Reply& reply, std::string& out) override {
    const ReplyChoice& c = reply.choices[0];
    event(out, {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(c)}, {"stop_sequence", stop_sequence(c)}}},
                {"usage", messages_usage(reply.usage)}});
    event(out, {{"type", "message_stop"}});
  }

  void failed(const Reply&, const ApiError& error, std::string& out) override {
    out.append("event: error\ndata: ").append(error_json(error, ErrorShape::kMessages)).append("\n\n");
  }

  Json whole(const Reply& reply) override {
    const ReplyChoice& c = reply.choices[0];
    Json content = Json::array();
    for (const Block& b : c.blocks) switch (b.kind) {
        case Block::Kind::kReasoning:
          content.push_back({{"type", "thinking"}, {"thinking", b.text}, {"signature", signature(b)}});
          break;
        case Block::Kind::kContent:
          content.push_back({{"type", "text"}, {"text", b.text}});
          break;
        case Block::Kind::kCall:
          content.push_back({{"type", "tool_use"}, {"id", b.id}, {"name", b.name}, {"input", input_of(b)}});
      }
    return {{"id", reply.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", reply.model},
            {"content", std::move(content)},
            {"stop_reason", stop_reason(c)},
            {"stop_sequence", stop_sequence(c)},
            {"usage", messages_usage(reply.usage)}};
  }

 private:
  static const Block& at(const Reply& reply, int choice, int block) {
    return reply.choices[static_cast<size_t>(choice)].blocks[static_cast<size_t>(block)];
  }
  static void event(std::string& out, const Json& data) {
    append_event(out, data, data["type"].get_ref<const std::string&>());
  }
  static void delta(std::string& out, int block, Json d) {
    event(out, {{"type", "content_block_delta"}, {"index", block}, {"delta", std::move(d)}});
  }
};

}  // namespace

std::unique_ptr<ReplyShape> make_messages_shape() { return std::make_unique<MessagesShape>(); }

}  // namespace lathe::serve
