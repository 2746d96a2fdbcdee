#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/api_error.h"
#include "serve/json.h"

// A reply in the making, and the shapes in which the APIs tell it. Streams and whole replies are told from the same
// blocks, so that they hold the same.
namespace lathe::serve {

// A run of output of one kind. Of a call: text is its arguments.
struct Block {
  enum class Kind { kReasoning, kContent, kCall };
  Kind kind;
  std::string text, name, id;
  bool open = true;
};

struct ReplyChoice {
  std::vector<Block> blocks;
  std::vector<OutputToken> tokens;  // kept only where they will be told
  size_t told_tokens = 0;           // of a stream
  std::optional<FinishReason> finish;
  std::string stopped_by;  // the stop string, if one

  bool has_call() const;
  std::string text(Block::Kind kind) const;  // all blocks of that kind
};

struct Reply {
  std::string id, model, fingerprint;
  int64_t created = 0;
  std::vector<ReplyChoice> choices;
  Usage usage;
  std::vector<std::vector<int32_t>> prompts;              // where ids are told
  std::vector<std::vector<OutputToken>> prompt_logprobs;  // by prompt, likewise
  int choices_a_prompt = 1;

  // What is told.
  bool logprobs = false, token_ids = false, tell_prompt_logprobs = false;
  bool include_usage = false, continuous_usage = false;
  bool reasoning = true;
};

// One API's way to tell it. All but whole() append server-sent events.
class ReplyShape {
 public:
  virtual ~ReplyShape() = default;
  virtual ErrorShape errors() const { return ErrorShape::kOpenAi; }
  virtual std::string_view ping() const { return ": ping\n\n"; }

  virtual void begin(Reply&, std::string&) {}
  virtual void block_begin(Reply&, int /*choice*/, int /*block*/, std::string&) {}
  virtual void block_text(Reply& reply, int choice, int block, std::string_view text, std::string& out) = 0;
  virtual void block_end(Reply&, int /*choice*/, int /*block*/, std::string&) {}
  virtual void choice_end(Reply&, int /*choice*/, std::string&) {}
  virtual void end(Reply& reply, std::string& out) = 0;
  // Behind the first byte; nothing follows.
  virtual void failed(const Reply& reply, const ApiError& error, std::string& out) = 0;
  virtual Json whole(const Reply& reply) = 0;
};

std::unique_ptr<ReplyShape> make_chat_shape(const Tokenizer& tokenizer);
std::unique_ptr<ReplyShape> make_completions_shape(const Tokenizer& tokenizer);
std::unique_ptr<ReplyShape> make_messages_shape();
std::unique_ptr<ReplyShape> make_responses_shape(Json echoed);  // fields of the request that a response repeats

// "chatcmpl-" and 24 random letters and digits.
std::string new_id(std::string_view prefix);
void append_event(std::string& out, const Json& data, std::string_view event = "");
Json usage_json(const Usage& usage);

}  // namespace lathe::serve
