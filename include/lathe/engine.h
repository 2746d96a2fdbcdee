#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/status.h"

// The engine embedded in a program: load a model folder, generate text. One thread calls an Engine at a time; the
// engine's own threads do the work.
namespace lathe {

class Recorder;  // see lathe/trace.h

struct EngineOptions {
  std::string model;                  // folder of a checkpoint, with tokenizer.json
  std::string dtype;                  // "f32" or "bf16" activations and caches; "": as config.json says
  std::string device = "cpu";         // or "sim"
  int threads = 0;                    // 0: all cores
  int max_context = 0;                // tokens of prompt and output; 0: the model's limit, at most 131072
  std::vector<std::string> variants;  // "OP=NAME"
  std::shared_ptr<Recorder> probes;   // records where time goes; null: off
};

struct SamplingOptions {
  std::optional<float> temperature, top_p;  // absent: as generation_config.json says, else greedy
  float min_p = 0;
  int top_k = 0;  // 0: all
  uint64_t seed = 0;
  int max_tokens = 512;
};

// What the model reads: ids, with media already expanded and read.
class Prompt;

enum class Finish { kStop, kLength, kCancelled };

struct Generation {
  std::string text;  // without the token that ended it
  std::vector<int32_t> tokens;
  Finish finish = Finish::kStop;
  int prompt_tokens = 0, cached_tokens = 0;  // cached: went on from the last call's memory
  double prefill_seconds = 0, decode_seconds = 0;
};

// An output cut into what a reader wants apart.
struct ParsedOutput {
  struct ToolCall {
    std::string name, arguments;  // arguments: a JSON object
  };
  std::string reasoning, content;
  std::vector<ToolCall> tool_calls;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
  ~Engine();

  // Text as it is: no template, no added tokens unless they are spelled out.
  Result<std::shared_ptr<const Prompt>> raw_prompt(std::string_view text, const std::vector<std::string>& images = {});
  // A conversation, as JSON: [{"role": "user", "content": "..."}, ...] or an object with "messages" and "tools",
  // through the model's chat template. `images` fill its picture placeholders in order.
  Result<std::shared_ptr<const Prompt>> chat_prompt(std::string_view messages_json,
                                                    const std::vector<std::string>& images = {});

  // Calls on_text with whole characters as they come; returning false cancels. A prompt that begins like what the
  // engine has in memory from the last call goes on from there.
  Result<Generation> generate(const Prompt& prompt, const SamplingOptions& sampling,
                              const std::function<bool(std::string_view)>& on_text = {});

  // Reasoning, answer and tool calls of an output of a chat prompt.
  ParsedOutput parse(const Generation& generation) const;

  int max_context() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lathe
