// Templates from anywhere, over a small conversation and over values from anywhere.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/jinja/json_value.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

namespace {
constexpr std::string_view kConversation =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, true, null]}}}]},
  {"role": "tool", "content": "<think>x</think>y"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
  "add_generation_prompt": true, "n": 3, "s": "Hello, wörld", "d": {"k": "v"}})";
}

// Input: a template, then, behind a zero byte, JSON that becomes the variable "v".
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe::jinja;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto t = Template::parse(input.substr(0, cut), "fuzz");
  if (!t.is_ok()) return 0;
  static const Value conversation = *value_from_json(kConversation, "conversation");
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [k, v] : conversation.dict()->entries) variables.emplace_back(k.text()->view(), v);
  if (cut != std::string_view::npos)
    if (const auto v = value_from_json(input.substr(cut + 1), "v"); v.is_ok()) variables.emplace_back("v", *v);
  const Limits limits{.steps = 20'000, .depth = 200, .output_bytes = 1 << 20, .built_bytes = 4 << 20};
  const auto out = t->render(variables, 0, limits);
  if (!out.is_ok()) return 0;
  LATHE_CHECK(lathe::is_utf8(out->view()));
  size_t end = 0;  // what came from outside: in order, apart, within the text
  for (const auto& range : out->data()) {
    LATHE_CHECK(range.begin >= end && range.begin < range.end && range.end <= out->size());
    end = range.end;
  }
  return 0;
}
