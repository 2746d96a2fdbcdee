#include "serve/reply.h"

// /v1/chat/completions and /v1/completions.
namespace lathe::serve {

namespace {

// What a token stands for; bytes that are no character of their own show as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id) { return tokenizer.decode(std::span(&id, 1)); }

Json bytes_of(const Tokenizer& tokenizer, int32_t id) {
  Json bytes = Json::array();
  for (char c : tokenizer.vocabulary().bytes(id)) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

Json chat_logprob(const Tokenizer& tokenizer, int32_t id, float logprob) {
  return {{"token", token_text(tokenizer, id)}, {"logprob", logprob}, {"bytes", bytes_of(tokenizer, id)}};
}

Json chat_logprobs(const Tokenizer& tokenizer, std::span<const OutputToken> tokens) {
  Json content = Json::array();
  for (const OutputToken& t : tokens) {
    Json entry = chat_logprob(tokenizer, t.token, t.logprob.value_or(0));
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& b : t.best) entry["top_logprobs"].push_back(chat_logprob(tokenizer, b.token, b.logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const Tokenizer& tokenizer, std::span<const OutputToken> tokens, size_t& offset) {
  Json texts = Json::array(), logprobs = Json::array(), best = Json::array(), offsets = Json::array();
  for (const OutputToken& t : tokens) {
    const std::string text = token_text(tokenizer, t.token);
    texts.push_back(text);
    logprobs.push_back(t.logprob.value_or(0));
    Json top = Json::object();
    for (const TokenLogprob& b : t.best) top[token_text(tokenizer, b.token)] = b.logprob;
    best.push_back(std::move(top));
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", texts}, {"token_logprobs", logprobs}, {"top_logprobs", best}, {"text_offset", offsets}};
}

Json prompt_logprobs(const Tokenizer& tokenizer, const std::vector<OutputToken>& tokens) {
  Json all = Json::array();
  for (const OutputToken& t : tokens) {
    if (!t.logprob) {
      all.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    auto add = [&](int32_t id, float logprob, int rank) {
      entry[std::to_string(id)] = {{"logprob", logprob}, {"rank", rank}, {"decoded_token", token_text(tokenizer, id)}};
    };
    for (const TokenLogprob& b : t.best) add(b.token, b.logprob, b.rank);
    if (!entry.contains(std::to_string(t.token))) add(t.token, *t.logprob, 0);
    all.push_back(std::move(entry));
  }
  return all;
}

Json ids_of(std::span<const OutputToken> tokens) {
  Json ids = Json::array();
  for (const OutputToken& t : tokens) ids.push_back(t.token);
  return ids;
}

const char* finish_name(const ReplyChoice& c) {
  if (c.finish == FinishReason::kLength) return "length";
  return c.has_call() ? "tool_calls" : "stop";
}

class OpenAiShape : public ReplyShape {
 public:
  explicit OpenAiShape(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void end(Reply& reply, std::string& out) override {
    if (reply.include_usage) {
      Json chunk = head(reply, true);
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_json(reply.usage);
      append_event(out, chunk);
    }
    out += "data: [DONE]\n\n";
  }

  void failed(const Reply&, const ApiError& error, std::string& out) override {
    out.append("data: ").append(error_json(error, ErrorShape::kOpenAi)).append("\n\n");
  }

 protected:
  virtual const char* object(bool chunk) const = 0;
  virtual Json logprobs(std::span<const OutputToken> tokens, size_t choice) = 0;

  Json head(const Reply& reply, bool chunk) const {
    return {{"id", reply.id},
            {"object", object(chunk)},
            {"created", reply.created},
            {"model", reply.model},
            {"system_fingerprint", reply.fingerprint}};
  }

  // A chunk with one choice; `own` is what the API puts beside its index. Tokens that weren't told yet come along.
  void send(Reply& reply, int choice, Json own, const char* finish, std::string& out) {
    ReplyChoice& c = reply.choices[static_cast<size_t>(choice)];
    Json entry = {{"index", choice}};
    for (auto& [key, value] : own.items()) entry[key] = std::move(value);
    const auto tokens = std::span<const OutputToken>(c.tokens).subspan(c.told_tokens);
    entry["logprobs"] = nullptr;
    if (reply.logprobs && !tokens.empty()) entry["logprobs"] = logprobs(tokens, static_cast<size_t>(choice));
    if (reply.token_ids && !tokens.empty()) entry["token_ids"] = ids_of(tokens);
    c.told_tokens = c.tokens.size();
    entry["finish_reason"] = finish ? Json(finish) : Json(nullptr);
    Json chunk = head(reply, true);
    chunk["choices"] = Json::array({std::move(entry)});
    if (reply.continuous_usage) chunk["usage"] = usage_json(reply.usage);
    append_event(out, chunk);
  }

  Json whole_choice(const Reply& reply, size_t i, Json own) {
    const ReplyChoice& c = reply.choices[i];
    Json entry = {{"index", i}};
    for (auto& [key, value] : own.items()) entry[key] = std::move(value);
    entry["logprobs"] = reply.logprobs ? logprobs(c.tokens, i) : Json(nullptr);
    if (reply.token_ids) entry["token_ids"] = ids_of(c.tokens);
    entry["finish_reason"] = finish_name(c);
    return entry;
  }

  const Tokenizer& tokenizer_;
};

class ChatShape : public OpenAiShape {
 public:
  using OpenAiShape::OpenAiShape;

  void begin(Reply& reply, std::string& out) override {
    for (size_t i = 0; i < reply.choices.size(); ++i) {
      Json own = {{"delta", {{"role", "assistant"}, {"content", ""}}}};
      if (i == 0 && reply.token_ids) own["prompt_token_ids"] = reply.prompts[0];
      if (i == 0 && reply.tell_prompt_logprobs)
        own["prompt_logprobs"] = prompt_logprobs(tokenizer_, reply.prompt_logprobs[0]);
      send(reply, static_cast<int>(i), std::move(own), nullptr, out);
    }
  }

  void block_begin(Reply& reply, int choice, int block, std::string& out) override {
    const Block& b = reply.choices[static_cast<size_t>(choice)].blocks[static_cast<size_t>(block)];
    if (b.kind != Block::Kind::kCall) return;
    delta(reply, choice,
          {{"tool_calls", Json::array({{{"index", call_index(reply, choice, block)},
                                        {"id", b.id},
                                        {"type", "function"},
                                        {"function", {{"name", b.name}, {"arguments", ""}}}}})}},
          out);
  }

  void block_text(Reply& reply, int choice, int block, std::string_view text, std::string& out) override {
    const std::string piece(text);
    switch (reply.choices[static_cast<size_t>(choice)].blocks[static_cast<size_t>(block)].kind) {
      case Block::Kind::kReasoning:
        return delta(reply, choice, {{"reasoning_content", piece}}, out);
      case Block::Kind::kContent:
        return delta(reply, choice, {{"content", piece}}, out);
      case Block::Kind::kCall:
        return delta(
            reply, choice,
            {{"tool_calls",
              Json::array({{{"index", call_index(reply, choice, block)}, {"function", {{"arguments", piece}}}}})}},
            out);
    }
  }

  void choice_end(Reply& reply, int choice, std::string& out) override {
    send(reply, choice, {{"delta", Json::object()}}, finish_name(reply.choices[static_cast<size_t>(choice)]), out);
  }

  Json whole(const Reply& reply) override {
    Json all = head(reply, false);
    all["choices"] = Json::array();
    for (size_t i = 0; i < reply.choices.size(); ++i) {
      const ReplyChoice& c = reply.choices[i];
      const std::string content = c.text(Block::Kind::kContent), reasoning = c.text(Block::Kind::kReasoning);
      Json message = {{"role", "assistant"},
                      {"content", content.empty() && c.has_call() ? Json(nullptr) : Json(content)},
                      {"refusal", nullptr}};
      if (!reasoning.empty()) message["reasoning_content"] = reasoning;
      for (const Block& b : c.blocks)
        if (b.kind == Block::Kind::kCall)
          message["tool_calls"].push_back(
              {{"id", b.id}, {"type", "function"}, {"function", {{"name", b.name}, {"arguments", b.text}}}});
      all["choices"].push_back(whole_choice(reply, i, {{"message", std::move(message)}}));
    }
    all["usage"] = usage_json(reply.usage);
    if (reply.token_ids) all["prompt_token_ids"] = reply.prompts[0];
    if (reply.tell_prompt_logprobs) all["prompt_logprobs"] = prompt_logprobs(tokenizer_, reply.prompt_logprobs[0]);
    return all;
  }

 private:
  const char* object(bool chunk) const override { return chunk ? "chat.completion.chunk" : "chat.completion"; }
  Json logprobs(std::span<const OutputToken> tokens, size_t) override { return chat_logprobs(tokenizer_, tokens); }

  void delta(Reply& reply, int choice, Json d, std::string& out) {
    send(reply, choice, {{"delta", std::move(d)}}, nullptr, out);
  }

  static int call_index(const Reply& reply, int choice, int block) {
    int index = -1;
    for (int i = 0; i <= block; ++i)
      index += reply.choices[static_cast<size_t>(choice)].blocks[static_cast<size_t>(i)].kind == Block::Kind::kCall;
    return index;
  }
};

class CompletionsShape : public OpenAiShape {
 public:
  using OpenAiShape::OpenAiShape;

  void begin(Reply& reply, std::string&) override { offsets_.resize(reply.choices.size()); }
  void block_text(Reply& reply, int choice, int, std::string_view text, std::string& out) override {
    send(reply, choice, first_of_prompt(reply, choice, {{"text", std::string(text)}}), nullptr, out);
  }
  void choice_end(Reply& reply, int choice, std::string& out) override {
    const ReplyChoice& c = reply.choices[static_cast<size_t>(choice)];
    send(reply, choice, first_of_prompt(reply, choice, {{"text", ""}}), finish_name(c), out);
  }

  Json whole(const Reply& reply) override {
    offsets_.assign(reply.choices.size(), 0);
    Json all = head(reply, false);
    all["choices"] = Json::array();
    for (size_t i = 0; i < reply.choices.size(); ++i) {
      Json own = {{"text", reply.choices[i].text(Block::Kind::kContent)}};
      add_prompt(reply, i, own);
      all["choices"].push_back(whole_choice(reply, i, std::move(own)));
    }
    all["usage"] = usage_json(reply.usage);
    return all;
  }

 private:
  const char* object(bool) const override { return "text_completion"; }
  Json logprobs(std::span<const OutputToken> tokens, size_t choice) override {
    return completion_logprobs(tokenizer_, tokens, offsets_[choice]);
  }

  void add_prompt(const Reply& reply, size_t choice, Json& own) {
    const size_t prompt = choice / static_cast<size_t>(reply.choices_a_prompt);
    if (reply.token_ids) own["prompt_token_ids"] = reply.prompts[prompt];
    if (reply.tell_prompt_logprobs) own["prompt_logprobs"] = prompt_logprobs(tokenizer_, reply.prompt_logprobs[prompt]);
  }

  // The prompt's part comes with the choice's first chunk.
  Json first_of_prompt(const Reply& reply, int choice, Json own) {
    if (told_.size() < reply.choices.size()) told_.resize(reply.choices.size());
    if (!told_[static_cast<size_t>(choice)]) add_prompt(reply, static_cast<size_t>(choice), own);
    told_[static_cast<size_t>(choice)] = true;
    return own;
  }

  std::vector<size_t> offsets_;
  std::vector<bool> told_;
};

}  // namespace

std::unique_ptr<ReplyShape> make_chat_shape(const Tokenizer& tokenizer) {
  return std::make_unique<ChatShape>(tokenizer);
}
std::unique_ptr<ReplyShape> make_completions_shape(const Tokenizer& tokenizer) {
  return std::make_unique<CompletionsShape>(tokenizer);
}

}  // namespace lathe::serve
