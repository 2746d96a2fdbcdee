// A model's output from anywhere, cut anywhere: always the same parts, and arguments that are JSON.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/json_text.h"
#include "text/output_stream.h"
#include "text/utf8.h"

namespace {
using Delta = lathe::OutputDelta;
constexpr std::string_view kTools = R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
  "i": {"type": "integer"}, "u": {"type": ["string", "array"]}, "r": {"$ref": "#/properties/r"}}}}])";

std::vector<Delta> run(std::string_view text, size_t piece, bool in_reasoning, int& malformed) {
  lathe::OutputStream stream(kTools, in_reasoning);
  std::vector<Delta> all;
  auto add = [&](std::vector<Delta> deltas) {
    for (Delta& d : deltas) {
      LATHE_CHECK(lathe::is_utf8(d.text));
      const bool grows = d.kind != Delta::Kind::kCallStart && d.kind != Delta::Kind::kCallEnd;
      if (grows && !all.empty() && all.back().kind == d.kind && all.back().call == d.call)
        all.back().text += d.text;
      else
        all.push_back(std::move(d));
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) add(stream.push(text.substr(at, piece)));
  add(stream.finish());
  malformed = stream.malformed_calls();
  return all;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool in_reasoning = data[0] & 1;
  int malformed = 0, other = 0;
  const auto whole = run(text, text.size() + 1, in_reasoning, malformed);
  LATHE_CHECK(whole == run(text, 1 + data[0] / 2 % 16, in_reasoning, other) && malformed == other);
  std::map<int, std::string> arguments;
  for (const Delta& d : whole) {
    if (d.kind == Delta::Kind::kCallStart) LATHE_CHECK(d.text == "f");
    if (d.kind == Delta::Kind::kCallArguments) arguments[d.call] += d.text;
    if (d.kind != Delta::Kind::kCallEnd) continue;
    lathe::JsonFollower scanner;
    scanner.push(arguments[d.call]);
    LATHE_CHECK(scanner.complete() && scanner.type() == lathe::JsonTypes::kObject);
  }
  return 0;
}
