#pragma once

#include <optional>
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
  // Ids; words of the messages never become added tokens, only the template's own do.
  Result<std::vector<int32_t>> encode(const Tokenizer& tokenizer) const;
  // As the reference library encodes it: whatever spells an added token becomes one.
  Result<std::vector<int32_t>> encode_trusting(const Tokenizer& tokenizer) const { return tokenizer.encode(text()); }

 private:
  jinja::Text text_;
};

// What is rendered: JSON, as clients send it.
struct ChatInput {
  std::string messages;   // [{"role": ..., "content": ...}, ...]
  std::string tools;      // a list, or ""
  std::string variables;  // an object of further variables (reasoning_effort, ...), or ""
  bool generation_prompt = true;
};

// A tokenizer_config.json's special tokens by field: bos_token, eos_token, ... Templates may print them.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// The chat template of a model folder: chat_template.jinja, or the field of tokenizer_config.json, where a second one
// for conversations with tools may stand.
class ChatTemplate {
 public:
  static bool exists(const std::string& model_dir);
  static Result<ChatTemplate> load(const std::string& model_dir);
  static Result<ChatTemplate> parse(std::string_view source, const std::string& name, SpecialTokens tokens = {});

  // The arguments of tool calls may be an object or its JSON as text: they are handed to the template in the form that
  // it prints, which is found out by a trial when the template is parsed. An error names the message.
  Result<RenderedChat> render(const ChatInput& input) const;

 private:
  enum class Arguments { kObject, kText };
  ChatTemplate(jinja::Template body, SpecialTokens tokens) : body_(std::move(body)), tokens_(std::move(tokens)) {}
  Result<jinja::Text> run(jinja::Value messages, jinja::Value tools, bool generation_prompt,
                          std::vector<std::pair<std::string, jinja::Value>> more) const;
  Arguments try_arguments() const;

  jinja::Template body_;
  std::optional<jinja::Template> with_tools_;
  SpecialTokens tokens_;
  Arguments arguments_ = Arguments::kObject;
};

// A JSON document that is a list of messages, or an object with "messages" and perhaps "tools", "add_generation_prompt"
// and "chat_template_kwargs" or "kwargs" (an object of further variables).
Result<ChatInput> chat_input_from_json(std::string_view json, const std::string& name);

}  // namespace lathe
