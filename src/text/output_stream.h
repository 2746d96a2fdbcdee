#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A growing output cut into reasoning, content and tool calls as it comes (serving.md 5). What it gives doesn't depend
// on how the text was split, and all deltas together are what parse_output() gives for the whole text.
namespace lathe {

struct OutputDelta {
  enum class Kind { kReasoning, kContent, kCallStart, kCallArguments, kCallEnd };
  Kind kind;
  std::string text;  // of kCallStart: the name, whole; of kCallArguments: a piece of a JSON object
  int call = -1;     // index of the tool call
};

class OutputStream {
 public:
  // tools: the request's list of tools as JSON, or "": only declared names become calls. in_reasoning: the prompt ended
  // with <think>; otherwise output is content until a <think> comes first.
  OutputStream(std::string_view tools_json, bool in_reasoning);
  OutputStream(OutputStream&&) noexcept;
  ~OutputStream();
  std::vector<OutputDelta> push(std::string_view text);
  std::vector<OutputDelta> finish();  // what was held back; a call that never ended is content
  int malformed_calls() const;        // calls that could not be read and went out as content

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lathe
