#include "text/output_parser.h"

#include "text/output_stream.h"

namespace lathe {

namespace {

// Puts deltas together again. A call that got no end is void.
struct Whole {
  ParsedText text;
  ParsedCall call;

  void add(std::vector<OutputDelta> deltas) {
    using Kind = OutputDelta::Kind;
    for (OutputDelta& d : deltas) {
      switch (d.kind) {
        case Kind::kReasoning:
          text.reasoning += d.text;
          break;
        case Kind::kContent:
          text.content += d.text;
          break;
        case Kind::kCallStart:
          call = {.name = std::move(d.text), .arguments = ""};
          break;
        case Kind::kCallArguments:
          call.arguments += d.text;
          break;
        case Kind::kCallEnd:
          text.calls.push_back(std::move(call));
          break;
      }
    }
  }
};

}  // namespace

ParsedText parse_output(std::string_view text, std::string_view tools_json, CallNames names) {
  OutputStream stream(tools_json, true, names);
  Whole whole;
  whole.add(stream.push(text));
  whole.add(stream.finish());
  return std::move(whole.text);
}

}  // namespace lathe
