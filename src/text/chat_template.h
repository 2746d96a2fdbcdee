#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace lathe {

// A conversation as a model reads it.
class RenderedChat {
 public:
  explicit RenderedChat(jinja::Text text) : text_(std::move(text)) {}
  std::string_view text() const { return text_.view(); }
  // Ids; words of the messages never become added tokens, only the template's own do. Where those words aren't UTF-8
  // that can't be kept apart: an error.
  Result<std::vector<int32_t>> encode(const Tokenizer& tokenizer) const;
  // As the reference library encodes it: whatever spells an added token becomes one.
  Result<std::vector<int32_t>> encode_trusting(const Tokenizer& tokenizer) const { return tokenizer.encode(text()); }

 private:
  jinja::Text text_;
};

// What is rendered: JSON, as clients send it.
struct ChatInput {
  std::string messages;                 // [{"role": ..., "content": ...}, ...]
  std::string tools;                    // a list, or ""
  std::string variables;                // an object of further variables (reasoning_effort, ...), or ""
  bool generation_prompt = true;
};

// The chat template of a model folder: chat_template.jinja, or the field of tokenizer_config.json.
class ChatTemplate {
 public:
  static bool exists(const std::string& model_dir);
  static Result<ChatTemplate> load(const std::string& model_dir);
  // bos_token and eos_token: what templates may print.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& name, std::string bos_token = "", std::string eos_token = "");

  Result<RenderedChat> render(const ChatInput& input) const;

 private:
  ChatTemplate(jinja::Template body, std::string bos, std::string eos) : body_(std::move(body)), bos_(std::move(bos)), eos_(std::move(eos)) {}
  jinja::Template body_;
  std::string bos_, eos_;
};

// A JSON document that is a list of messages, or an object with "messages" and perhaps "tools" and
// "chat_template_kwargs" (an object of further variables).
Result<ChatInput> chat_input_from_json(std::string_view json, const std::string& name);

}  // namespace lathe
