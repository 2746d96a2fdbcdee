// Reasoning, content and calls out of a text, however it is split.
#include "text/output_stream.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "text/json_text.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;
using Kind = OutputDelta::Kind;

const std::string kTools = R"([
  {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
    "path": {"type": "string"}, "mode": {"type": "integer"}, "share": {"type": "number"}, "force": {"type": "boolean"},
    "none": {"type": "null"}, "tags": {"type": "array", "items": {"type": "string"}}, "meta": {"type": "object"},
    "when": {"type": ["string", "null"]}, "size": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "kind": {"enum": ["1", "2"]}, "ref": {"$ref": "#/$defs/text"}, "both": {"oneOf": [{"type": "object"}, {"type": "array"}]},
    "free": {}},
    "$defs": {"text": {"type": "string"}}}}},
  {"name": "now", "parameters": {}}])";

// Deltas as if they had come in one piece: neighbours of one kind are one.
std::vector<OutputDelta> joined(const std::vector<OutputDelta>& deltas) {
  std::vector<OutputDelta> out;
  for (const OutputDelta& d : deltas) {
    const bool grows = d.kind != Kind::kCallStart && d.kind != Kind::kCallEnd;
    if (grows && !out.empty() && out.back().kind == d.kind && out.back().call == d.call)
      out.back().text += d.text;
    else
      out.push_back(d);
  }
  return out;
}

struct Outcome {
  std::vector<OutputDelta> deltas;
  int malformed = 0;
};

template <class NextSize>
Outcome run_split(std::string_view text, NextSize next, bool in_reasoning = true,
                  CallNames names = CallNames::kDeclared) {
  OutputStream stream(kTools, in_reasoning, names);
  Outcome run;
  auto add = [&](std::vector<OutputDelta> d) { run.deltas.insert(run.deltas.end(), d.begin(), d.end()); };
  while (!text.empty()) {
    const size_t n = std::min<size_t>(next(), text.size());
    add(stream.push(text.substr(0, n)));
    text.remove_prefix(n);
  }
  add(stream.finish());
  run.malformed = stream.malformed_calls();
  return run;
}

Outcome run_whole(std::string_view text, bool in_reasoning = true) {
  return run_split(text, [&] { return std::string::npos; }, in_reasoning);
}

std::string show(const std::vector<OutputDelta>& deltas) {
  std::string out;
  for (const OutputDelta& d : joined(deltas)) {
    out += "RC>ae"[static_cast<int>(d.kind)];
    out += d.text + "|";
  }
  return out;
}

// What write is called with, as the template would print `value` of `argument`.
std::string arguments(const std::string& argument, const std::string& value) {
  const ParsedText out = parse_output(
      "</think><tool_call>write<arg_key>" + argument + "</arg_key><arg_value>" + value + "</arg_value></tool_call>",
      kTools, CallNames::kDeclared);
  return out.calls.size() == 1 ? out.calls[0].arguments : "content: " + out.content;
}

TEST(OutputStream, ArgumentsFollowTheSchema) {
  EXPECT_EQ(arguments("path", "12"), R"({"path":"12"})");
  EXPECT_EQ(arguments("path", " a \"b\"\n\\"), R"({"path":" a \"b\"\n\\"})");
  EXPECT_EQ(arguments("path", ""), R"({"path":""})");
  EXPECT_EQ(arguments("kind", "1"), R"({"kind":"1"})");
  EXPECT_EQ(arguments("ref", "1"), R"({"ref":"1"})");
  EXPECT_EQ(arguments("mode", " 420\n"), R"({"mode":420})");
  EXPECT_EQ(arguments("mode", "12345678901234567890123"), R"({"mode":12345678901234567890123})");
  EXPECT_EQ(arguments("share", "1e400"), R"({"share":1e400})");
  EXPECT_EQ(arguments("share", "0.10"), R"({"share":0.10})");
  EXPECT_EQ(arguments("share", "01"), R"({"share":"01"})");
  EXPECT_EQ(arguments("force", "true"), R"({"force":true})");
  EXPECT_EQ(arguments("none", "null"), R"({"none":null})");
  EXPECT_EQ(arguments("tags", R"(["a", "b"])"), R"({"tags":["a", "b"]})");
  EXPECT_EQ(arguments("meta", R"({"a": {"b": [1, 2.50]}})"), R"({"meta":{"a": {"b": [1, 2.50]}}})");
  EXPECT_EQ(arguments("both", "[1]"), R"({"both":[1]})");
  EXPECT_EQ(arguments("when", "null"), R"({"when":null})");
  EXPECT_EQ(arguments("when", "12"), R"({"when":"12"})");
  EXPECT_EQ(arguments("when", "\"x\""), R"({"when":"\"x\""})");
  EXPECT_EQ(arguments("size", "12"), R"({"size":12})");
  EXPECT_EQ(arguments("size", "12 kB"), R"({"size":"12 kB"})");
  EXPECT_EQ(arguments("free", "[1]"), R"({"free":[1]})");
  EXPECT_EQ(arguments("free", "\"x\""), R"({"free":"x"})");
  EXPECT_EQ(arguments("free", "[1"), R"({"free":"[1"})");
  EXPECT_EQ(arguments("mode", "many"), R"({"mode":"many"})");
  EXPECT_EQ(arguments("undeclared", "1"), R"({"undeclared":1})");
}

TEST(OutputStream, TagsInsideArgumentsAreText) {
  EXPECT_EQ(arguments("path", "a</arg_value>b"), R"({"path":"a</arg_value>b"})");
  EXPECT_EQ(arguments("path", "<tool_call>now</tool_call></think>"),
            R"({"path":"<tool_call>now</tool_call></think>"})");
  EXPECT_EQ(arguments("path", "</arg_key><arg_value>"), R"({"path":"</arg_key><arg_value>"})");
  EXPECT_EQ(arguments("path", "</arg_value"), R"({"path":"</arg_value"})");
  EXPECT_EQ(arguments("path", "</arg_value> <"), R"({"path":"</arg_value> <"})");
  // Even an end as it is written, where JSON shows that the string goes on.
  EXPECT_EQ(arguments("tags", R"(["</arg_value></tool_call>", 1])"), R"({"tags":["</arg_value></tool_call>", 1]})");
}

TEST(OutputStream, WhereCallsStand) {
  EXPECT_EQ(show(run_whole("r</think>c").deltas), "Rr|Cc|");
  EXPECT_EQ(show(run_whole("<think>r</think>c").deltas), "Rr|Cc|");
  EXPECT_EQ(show(run_whole("r<tool_call>now</tool_call>").deltas), "Rr|>now|a{}|e|");
  EXPECT_EQ(show(run_whole("</think>c\n<tool_call>now\n</tool_call>\n").deltas), "Cc\n|>now|a{}|e|C\n|");
  EXPECT_EQ(show(run_whole("</think>\n<tool_call>now</tool_call>\n").deltas), ">now|a{}|e|");
  EXPECT_EQ(show(run_whole("</think>\n\n").deltas), "C\n\n|");
  EXPECT_EQ(show(run_whole("c<think>", false).deltas), "Cc<think>|");
  EXPECT_EQ(show(run_whole("\n<think>r</think>c", false).deltas), "Rr|Cc|");
  EXPECT_EQ(show(run_whole("a</think>b", false).deltas), "Ca</think>b|");
}

TEST(OutputStream, NoCallIsLost) {
  auto expect = [](const std::string& text, const std::string& shown, int malformed) {
    const Outcome run = run_whole("</think>" + text);
    EXPECT_EQ(show(run.deltas), shown) << text;
    EXPECT_EQ(run.malformed, malformed) << text;
  };
  auto stays = [&](const std::string& text) { expect(text, "C" + text + "|", 1); };
  stays("<tool_call>unknown</tool_call>");
  stays("<tool_call>unknown<arg_key>k</arg_key><arg_value><tool_call>now</tool_call></arg_value></tool_call>");
  stays("<tool_call></tool_call>");
  stays("<tool_call>now and then</tool_call>");
  stays("<tool_call>now");
  stays("<tool_call>write<arg_key>path");
  stays("<tool_call>write<arg_key>path</arg_key>a</arg_value></tool_call>");
  stays("<tool_call>write<arg_key>path<arg_value>a</arg_value></tool_call>b");
  // Broken behind its first argument: what has gone out is void, the text comes whole.
  const std::string begun = "<tool_call>write<arg_key>path</arg_key><arg_value>a";
  expect(begun, R"(>write|a{"path":"a|C)" + begun + "|", 1);
  const ParsedText whole = parse_output("</think>" + begun, kTools);
  EXPECT_TRUE(whole.calls.empty());
  EXPECT_EQ(whole.content, begun);
  // A missing </tool_call> costs nothing.
  expect("<tool_call>write<arg_key>mode</arg_key><arg_value>1</arg_value><tool_call>now</tool_call>",
         R"(>write|a{"mode":1}|e|>now|a{}|e|)", 0);
  // Talk of calls inside reasoning is reasoning.
  EXPECT_EQ(show(run_whole("a <tool_call> tag</think>c").deltas), "Ra <tool_call> tag|Cc|");
}

TEST(OutputStream, StringsStreamAndOthersComeWhole) {
  OutputStream stream(kTools, false);
  stream.push("<tool_call>write<arg_key>path</arg_key><arg_value>a");
  EXPECT_EQ(show(stream.push("bc</arg_")), "abc|");
  EXPECT_EQ(show(stream.push("key>d\xc3")), "a</arg_key>d|");
  EXPECT_EQ(show(stream.push("\xa9")), "aé|");
  EXPECT_EQ(show(stream.push("</arg_value><arg_key>mode</arg_key><arg_value>1")), "a\",\"mode\":|");
  EXPECT_EQ(show(stream.push("2</arg_value></tool_call>")), "a12}|e|");
}

TEST(OutputStream, AnySplitGivesTheSame) {
  const std::vector<std::string> pieces = {"<think>",
                                           "</think>",
                                           "<tool_call>",
                                           "</tool_call>",
                                           "<arg_key>",
                                           "</arg_key>",
                                           "<arg_value>",
                                           "</arg_value>",
                                           "write",
                                           "now",
                                           "path",
                                           "mode",
                                           "tags",
                                           "free",
                                           "when",
                                           "größe",
                                           "北京",
                                           "😀",
                                           "\xe5\x8c",
                                           "\xff",
                                           " ",
                                           "\n",
                                           "<",
                                           "</arg",
                                           "1",
                                           "-2.5e3",
                                           "\"",
                                           "\\",
                                           "[\"a",
                                           "\"]",
                                           "{\"k\": ",
                                           "}",
                                           "</arg_value></tool_call>",
                                           "<tool_call>write<arg_key>path</arg_key><arg_value>",
                                           "<tool_call>write<arg_key>tags</arg_key><arg_value>[\"",
                                           "<tool_call>now</tool_call>"};
  std::mt19937 random(7);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int calls = 0, malformed = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string text;
    for (size_t n = below(24); n > 0; --n) text += pieces[below(pieces.size())];
    const bool in_reasoning = below(2) == 0;
    const CallNames names = below(2) == 0 ? CallNames::kAny : CallNames::kDeclared;
    const Outcome whole = run_split(text, [] { return std::string::npos; }, in_reasoning, names);
    const size_t longest = 1 + below(9);
    const Outcome split = run_split(text, [&] { return 1 + below(longest); }, in_reasoning, names);
    ASSERT_EQ(joined(whole.deltas), joined(split.deltas)) << text;
    ASSERT_EQ(whole.malformed, split.malformed) << text;
    malformed += whole.malformed;
    std::map<int, JsonFollower> open;
    for (const OutputDelta& d : split.deltas) {
      ASSERT_TRUE(is_utf8(d.text)) << text;
      if (d.kind == Kind::kCallArguments) open[d.call].push(d.text);
      if (d.call >= 0) {
        ASSERT_FALSE(open[d.call].failed()) << text;
      }
      if (d.kind == Kind::kCallEnd) {
        ASSERT_TRUE(open[d.call].complete() && ++calls) << text;
      }
    }
    if (!in_reasoning) continue;
    // Nothing is lost or invented: parse_output is the sum.
    const ParsedText parsed = parse_output(text, kTools, names);
    ParsedText sum;
    std::map<int, ParsedCall> by_index;
    for (const OutputDelta& d : split.deltas) {
      if (d.kind == Kind::kReasoning) sum.reasoning += d.text;
      if (d.kind == Kind::kContent) sum.content += d.text;
      if (d.kind == Kind::kCallStart) by_index[d.call].name = d.text;
      if (d.kind == Kind::kCallArguments) by_index[d.call].arguments += d.text;
      if (d.kind == Kind::kCallEnd) sum.calls.push_back(by_index[d.call]);
    }
    ASSERT_EQ(parsed.reasoning, sum.reasoning);
    ASSERT_EQ(parsed.content, sum.content);
    ASSERT_EQ(parsed.calls.size(), sum.calls.size());
    for (size_t i = 0; i < sum.calls.size(); ++i) {
      ASSERT_EQ(parsed.calls[i].name, sum.calls[i].name);
      ASSERT_EQ(parsed.calls[i].arguments, sum.calls[i].arguments);
    }
  }
  EXPECT_GT(calls, 200);
  EXPECT_GT(malformed, 200);
}

// What the template prints of a call comes back as it was.
TEST(OutputStream, CallsComeBack) {
  std::mt19937 random(3);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<std::string> strings = {"", "a", "<tool_call>", "</arg_value>", "null", "12", "\"", "é\n\t", "[1]"};
  const std::vector<Json> values = {1, -7, 2.5, true, nullptr, Json::array({1, "</arg_value>"}), {{"a", "<arg_key>"}}};
  for (int trial = 0; trial < 500; ++trial) {
    Json wanted = Json::object();
    std::string text = "</think><tool_call>write";
    for (const char* name : {"path", "ref", "kind"})
      if (below(2) == 0) wanted[name] = strings[below(strings.size())];
    for (const char* name : {"mode", "free", "meta", "tags"})
      if (below(2) == 0) wanted[name] = values[below(values.size())];
    for (const auto& [name, value] : wanted.items())
      text += "<arg_key>" + name + "</arg_key><arg_value>" +
              (value.is_string() ? value.get<std::string>() : value.dump()) + "</arg_value>";
    const ParsedText out = parse_output(text + "</tool_call>", kTools);
    ASSERT_EQ(out.calls.size(), 1u) << text;
    EXPECT_EQ(Json::parse(out.calls[0].arguments), wanted) << text;
  }
}

TEST(OutputStream, LongArgumentsTakeLinearTime) {
  OutputStream stream(kTools, false);
  stream.push("<tool_call>write<arg_key>tags</arg_key><arg_value>[\"");
  for (int i = 0; i < 200'000; ++i) stream.push(i % 10 == 0 ? "</arg_value> <" : "abcd");
  stream.push("\"]</arg_value></tool_call>");
  EXPECT_EQ(stream.malformed_calls(), 0);
}

TEST(JsonFollower, AgreesWithTheLibrary) {
  auto accepts = [](std::string_view text) {
    JsonFollower scanner;
    scanner.push(text);
    return scanner.complete();
  };
  const std::string alphabet = "{}[]\",:\\ u0ad89E.-+1truefalsn\n";
  std::mt19937 random(5);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<std::string> seeds = {R"({"a": [1, -0.5e+10, true, null, "\ud83d\ude00\n"], "b": {}})",
                                          "[[], {}]",
                                          "-0",
                                          "1.5",
                                          "\"\\u00e9\"",
                                          "false"};
  int accepted = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    std::string text = seeds[below(seeds.size())];
    for (size_t n = below(3); n > 0; --n) {
      const size_t at = below(text.size());
      if (below(2) == 0)
        text.erase(at, 1);
      else
        text.insert(at, 1, alphabet[below(alphabet.size())]);
      if (text.empty()) text = "0";
    }
    const bool expected = Json::accept(text);
    if (expected != accepts(text) && text.find_first_of("eE") != std::string::npos) continue;  // it refuses 1e999
    ASSERT_EQ(expected, accepts(text)) << text;
    accepted += expected;
  }
  EXPECT_GT(accepted, 10000);
}

}  // namespace
}  // namespace lathe
