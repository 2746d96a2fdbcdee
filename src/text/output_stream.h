#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A growing output cut into reasoning, content and tool calls as it comes (serving.md 5). What it gives doesn't depend
// on how the text was split, and all deltas together are what parse_output() gives for the whole text.
//
//   output = [<think>] reasoning [</think>] content        a call may stand in either
//   call   = <tool_call> NAME { <arg_key> K </arg_key> <arg_value> V </arg_value> } </tool_call>
//
// White space may stand between tags. V ends at an </arg_value> that <arg_key>, </tool_call> or the next <tool_call>
// follows, so that any other tag inside V is text; inside a string of a JSON value such an end is text, too, if the
// JSON is completed later. V is a string as it is where the tool's schema says string; where it says otherwise or
// nothing, V is taken over byte for byte if it is JSON, and is a string if not.
namespace lathe {

struct OutputDelta {
  enum class Kind { kReasoning, kContent, kCallStart, kCallArguments, kCallEnd };
  Kind kind;
  std::string text;  // of kCallStart: the name, whole; of kCallArguments: a piece of a JSON object
  int call = -1;     // index of the tool call
  friend bool operator==(const OutputDelta&, const OutputDelta&) = default;
};

// Whose calls are calls. Others are content.
enum class CallNames { kDeclared, kAny };

class OutputStream {
 public:
  // tools: the request's list of tools as JSON, or "". in_reasoning: the prompt ended with <think>; otherwise output is
  // content until a <think> comes first.
  OutputStream(std::string_view tools_json, bool in_reasoning, CallNames names = CallNames::kDeclared);
  OutputStream(OutputStream&&) noexcept;
  ~OutputStream();
  // Deltas are whole characters, whatever the pieces are; bytes that are no UTF-8 become U+FFFD.
  std::vector<OutputDelta> push(std::string_view text);
  // What was held back. A call that never ended is content, as it was written. Arguments stream, so such a call may
  // have begun already: one that got no kCallEnd is void, and its text has come as content.
  std::vector<OutputDelta> finish();
  int malformed_calls() const;  // what began with <tool_call> and went out as text

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lathe
