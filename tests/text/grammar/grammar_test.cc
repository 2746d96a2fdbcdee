// Grammars as a step loop sees them: which tokens may come, and what whole texts pass.
#include "text/grammar/grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "text/grammar/grammar_cache.h"
#include "text/grammar/texts.h"
#include "text/json_text.h"
#include "text/output_parser.h"
#include "text/pattern.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarSource::Kind;
using testing::compile, testing::demo_tokenizer, testing::demo_trie, testing::has, testing::mask_of, testing::takes;

std::mt19937& rng() {
  static std::mt19937 random(11);
  return random;
}
size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng()); }

void expect_texts(const GrammarSource& source, const std::vector<std::string>& yes,
                  const std::vector<std::string>& no) {
  const auto grammar = compile(source);
  ASSERT_TRUE(grammar.is_ok()) << source.text << ": " << grammar.status().message();
  for (const std::string& text : yes)
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(takes(*grammar, text, rng())) << source.text << " should take " << text;
  for (const std::string& text : no)
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(takes(*grammar, text, rng())) << source.text << " should refuse " << text;
}

std::string error_of(const GrammarSource& source, const GrammarLimits& limits = {}) {
  const auto grammar = compile(source, limits);
  return grammar.is_ok() ? "compiled" : grammar.status().message();
}

GrammarSource regex(const std::string& text) { return {Kind::kRegex, text, {}}; }
GrammarSource ebnf(const std::string& text) { return {Kind::kEbnf, text, {}}; }
GrammarSource schema(const std::string& text) { return {Kind::kJsonSchema, text, {}}; }

// The mask against the definition: a token may come if the state can take it.
void expect_mask_is_exact(const GrammarState& state) {
  const std::vector<uint32_t> mask = mask_of(state);
  for (int32_t t = 0; t < demo_trie()->size(); ++t) {
    GrammarState next = state;
    ASSERT_EQ(has(mask, t), next.advance(t)) << "token " << t << " '" << demo_tokenizer().spelling(t) << "'";
  }
}

// Follows the mask at random until the text must end; "" if `most` tokens weren't enough.
std::string random_walk(const std::shared_ptr<const Grammar>& grammar, int most) {
  GrammarState state(grammar);
  std::string text;
  for (int i = 0; i < most; ++i) {
    if (state.may_end() && (state.must_end() || below(3) == 0)) return text;
    const std::vector<uint32_t> mask = mask_of(state);
    std::vector<int32_t> tokens;
    for (int32_t t = 0; t < demo_trie()->size(); ++t)
      if (has(mask, t)) tokens.push_back(t);
    LATHE_CHECK(!tokens.empty());
    // Tags are few among thousands: half of the time one of them, where it may come.
    const auto tags = std::partition_point(tokens.begin(), tokens.end(),
                                           [](int32_t t) { return !demo_tokenizer().vocabulary().is_added(t); });
    if (tags != tokens.end() && below(2) == 0) tokens.erase(tokens.begin(), tags);
    const int32_t token = tokens[below(tokens.size())];
    LATHE_CHECK(state.advance(token));
    text += demo_tokenizer().vocabulary().bytes(token);
  }
  return "";
}

TEST(Grammar, Choices) {
  expect_texts({Kind::kChoice, "", {"yes", "no", "nothing", "größe", ""}}, {"yes", "no", "nothing", "größe", ""},
               {"y", "not", "yesno", "gr"});
  EXPECT_NE(error_of({Kind::kChoice, "", {}}).find("empty"), std::string::npos);
}

TEST(Grammar, Regexes) {
  expect_texts(regex("a+b?c{2,3}|[^a-y\\d]{1,}"), {"acc", "aaabccc", "z", "zzé北"}, {"ac", "acccc", "", "z1", "a"});
  expect_texts(regex("^(?:\\d{3}-){1,2}\\w+$"), {"123-a", "123-456-_9"}, {"123", "12-a", "123-"});
  expect_texts(regex("(?i)Hello[ ,]+(?-i:x)\\p{Lu}"), {"hELLO, xÄ"}, {"hello Xa", "hello x1"});
  expect_texts(regex(".*"), {"", "a b\"", "é😀"}, {"a\nb"});
  expect_texts(regex("(?s).\\.\\Q.*\\E"), {"\n..*"}, {"\n.", "aa.*"});
  expect_texts(regex("[[:alpha:]_][^[:space:]]*?"), {"_a1", "Z"}, {"1", "a b"});
  expect_texts(regex("[]a-]+x{,2}"), {"]-ax{,2}"}, {"]"});
  expect_texts(regex("\\x41\\x{1F600}\\u00e9"), {"A😀é"}, {"A"});
  expect_texts(regex("(a|b|)(?P<name>c)?"), {"", "a", "bc", "c"}, {"ab"});
  for (const char* bad : {"(", ")", "a**", "[b-a]", "\\1", "(?=a)", "(?!a)", "\\b", "a{2,1}", "a{1001}", "*",
                          "\\p{Greek}", "a^", "(a$)", "[a", "\\", "(?m)a", "[[:nope:]]"})
    EXPECT_NE(error_of(regex(bad)).find("pattern"), std::string::npos) << bad;
}

// Against PCRE2: random patterns over random texts.
TEST(Grammar, RegexesAgreeWithAnotherEngine) {
  const std::vector<std::string> atoms = {"a", "b", "[ab]", "[^a]", ".", "é", "(a|bc)", "(b|)", "\\d", "(?:a|é)", "c"};
  const std::vector<std::string> repeats = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}"};
  const std::vector<std::string> letters = {"a", "b", "c", "é", "1", "\n"};
  int matched = 0;
  for (int trial = 0; trial < 150; ++trial) {
    std::string pattern;
    for (size_t n = 1 + below(4); n > 0; --n) {
      pattern += atoms[below(atoms.size())] + repeats[below(repeats.size())];
      if (below(6) == 0) pattern += "|";
    }
    const auto grammar = compile(regex(pattern));
    ASSERT_TRUE(grammar.is_ok()) << pattern << ": " << grammar.status().message();
    const auto other = Pattern::compile("\\A(?:" + pattern + ")\\z", "test");
    ASSERT_TRUE(other.is_ok()) << pattern;
    auto scratch = other->make_scratch();
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (size_t n = below(6); n > 0; --n) text += letters[below(letters.size())];
      size_t begin, end;
      const bool expected = other->search(text, 0, scratch, begin, end) == Pattern::Found::kMatch;
      ASSERT_EQ(takes(*grammar, text, rng()), expected) << pattern << " over " << text;
      matched += expected;
    }
  }
  EXPECT_GT(matched, 300);
}

TEST(Grammar, Ebnf) {
  expect_texts(ebnf("root ::= \"a\" item* (\"x\" | [^a-z\\n]{2}) # comment\nitem ::= \"-\" root? \"+\"\n"),
               {"ax", "a12", "a-+x", "a-ax+x", "a-a-+x+12"}, {"a", "a1", "a-x", "ax+"});
  expect_texts(ebnf(R"gbnf(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*)gbnf"),
               {"a=1\n", "a +b*(c) = 2 \n", "1=1\n1=1\n\n"}, {"a=", "=1\n", "a+=1\n"});
  expect_texts(ebnf("root ::= \"\\x41\\u00e9\" .\n  | \"b\"\n"), {"Aé北", "b"}, {"A", "Aé"});
  expect_texts(ebnf("root ::= x{2,3} y{0} z{1,}\nx ::= \"x\"\ny ::= \"y\"\nz ::= \"z\" | \"\""), {"xx", "xxxzz", "xxz"},
               {"x", "xxy"});
  EXPECT_NE(error_of(ebnf("root ::= root \"a\" | \"b\"")).find("left recursion"), std::string::npos);
  EXPECT_NE(error_of(ebnf("root ::= e? root \"a\" | \"b\"\ne ::= \"e\"")).find("left recursion"), std::string::npos);
  EXPECT_NE(error_of(ebnf("root ::= other")).find("other"), std::string::npos);
  EXPECT_NE(error_of(ebnf("x ::= \"a\"")).find("root"), std::string::npos);
  EXPECT_NE(error_of(ebnf("root ::= \"a\"\nroot ::= \"b\"")).find("twice"), std::string::npos);
  EXPECT_NE(error_of(ebnf("root ::= \"a\n")).find("line 1"), std::string::npos);
  EXPECT_NE(error_of(ebnf("root ::= \"a\" root")).find("no text"), std::string::npos);
  EXPECT_NE(error_of(ebnf(fmt::format("root ::= {:(>300}\"a\"{:)>300}", "", ""))).find("200"), std::string::npos);
}

TEST(Grammar, MasksAreExact) {
  const std::vector<GrammarSource> sources = {
      regex("(?:[a-z]+ ?){1,3}é{2}\\d*"),
      ebnf("root ::= \"(\" root* \")\" | [a-f]+ | [d-z]+ \"!\""),
      {Kind::kJsonObject, "", {}},
      schema(
          R"({"type": "object", "properties": {"ab": {"type": "string", "minLength": 2, "maxLength": 4}, "n": {"type": "array",
        "items": {"type": "integer", "minimum": -5, "maximum": 120}, "maxItems": 3}, "s": {"type": "string", "maxLength": 30}},
        "required": ["ab"]})")};
  for (const GrammarSource& source : sources) {
    const auto grammar = compile(source).value();
    for (int walk = 0; walk < 3; ++walk) {
      GrammarState state(grammar);
      for (int step = 0; step < 12 && !state.must_end(); ++step) {
        expect_mask_is_exact(state);
        const std::vector<uint32_t> mask = mask_of(state);
        std::vector<int32_t> tokens;
        for (int32_t t = 0; t < demo_trie()->size(); ++t)
          if (has(mask, t)) tokens.push_back(t);
        if (tokens.empty()) break;
        ASSERT_TRUE(state.advance(tokens[below(tokens.size())]));
      }
    }
  }
}

TEST(Grammar, StatesAreValues) {
  const auto grammar = compile(regex("ab|ac")).value();
  const int32_t a = demo_tokenizer().id_of("a"), b = demo_tokenizer().id_of("b"), c = demo_tokenizer().id_of("c");
  GrammarState state(grammar);
  EXPECT_FALSE(state.advance(b));
  EXPECT_TRUE(state.advance(a));
  GrammarState fork = state;
  EXPECT_TRUE(fork.advance(b));
  EXPECT_TRUE(fork.must_end());
  EXPECT_FALSE(state.may_end());
  EXPECT_TRUE(state.advance(c));
  fork = state;
  EXPECT_TRUE(fork.may_end());
  GrammarState moved = std::move(fork);
  EXPECT_TRUE(moved.must_end());
  EXPECT_FALSE(moved.advance(-1) || moved.advance(1 << 30));
}

TEST(Grammar, EndsComeWhereTheTextMayEnd) {
  const auto grammar = compile(regex("ab?")).value();
  const int32_t end = demo_tokenizer().id_of("<|endoftext|>"), user = demo_tokenizer().id_of("<|user|>");
  GrammarState state(grammar);
  EXPECT_FALSE(has(mask_of(state, std::vector<int32_t>{end}), end));
  ASSERT_TRUE(state.advance(demo_tokenizer().id_of("a")));
  const std::vector<uint32_t> mask = mask_of(state, std::vector<int32_t>{end});
  EXPECT_TRUE(has(mask, end));
  EXPECT_FALSE(has(mask, user));
  EXPECT_FALSE(state.advance(end));
}

TEST(Grammar, AddedTokensAreNoText) {
  const auto grammar = compile(regex("(?s).*")).value();
  const std::vector<uint32_t> mask = mask_of(GrammarState(grammar));
  for (const AddedToken& t : demo_tokenizer().vocabulary().added()) EXPECT_FALSE(has(mask, t.id)) << t.content;
  // Their spelling is text like any other.
  EXPECT_TRUE(takes(grammar, "<tool_call>", rng()));
}

TEST(Grammar, NothingMayComeBehindTheEnd) {
  const auto grammar = compile(regex("a")).value();
  GrammarState state(grammar);
  std::vector<uint32_t> mask((demo_trie()->size() + 31) / 32);
  EXPECT_TRUE(state.allowed({}, mask));
  ASSERT_TRUE(state.advance(demo_tokenizer().id_of("a")));
  EXPECT_FALSE(state.allowed({}, mask));
  EXPECT_TRUE(state.must_end());
  EXPECT_TRUE(state.allowed(std::vector<int32_t>{3}, mask));
}

TEST(Grammar, AnyObjectGoesDeep) {
  const auto grammar = compile({Kind::kJsonObject, "", {}}).value();
  expect_texts({Kind::kJsonObject, "", {}},
               {"{}", R"({"a": [1, -2.5e+3, true, null, {"é\n\u00e9\ud83d\ude00": {}}], "b": ""})",
                "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}"},
               {"[]", "{", "{a: 1}", "{\"a\" 1}", "{\"a\": 01}", "{\"a\": \"\\ud83d\"}", "{\"a\":  1}", "{} ",
                "{\"a\": \"\n\"}"});
  std::string deep;
  for (int i = 0; i < 900; ++i) deep += "{\"a\":[";
  GrammarState state(grammar);
  for (const int32_t t : testing::random_tokens(deep, rng())) ASSERT_TRUE(state.advance(t));
  mask_of(state);
  // Beyond 2000 frames nothing opens any more, and what is open can still be closed.
  while (state.advance(demo_tokenizer().id_of("["))) {
  }
  const std::vector<uint32_t> mask = mask_of(state);
  EXPECT_FALSE(has(mask, demo_tokenizer().id_of("[")));
  EXPECT_TRUE(has(mask, demo_tokenizer().id_of("]")));
  expect_mask_is_exact(state);
}

TEST(Grammar, LimitsAreSaid) {
  EXPECT_NE(error_of(regex(std::string(1025, 'a'))).find("1024"), std::string::npos);
  EXPECT_NE(error_of(ebnf(fmt::format("root ::= \"{:a>65536}\"", ""))).find("65536"), std::string::npos);
  EXPECT_NE(error_of(schema(fmt::format("{{\"title\": \"{:a>263000}\"}}", ""))).find("262144"), std::string::npos);
  EXPECT_NE(error_of(regex("((a{100}){100}){100}"), {.bytes = 1 << 20}).find("MiB"), std::string::npos);
  EXPECT_NE(error_of(regex("(((a|b){0,900}){0,900}){0,900}")).find("simpler"), std::string::npos);
  EXPECT_NE(error_of(regex("(a|b)*a(a|b){24}"), {.seconds = 0.05}).find("simpler"), std::string::npos);
  std::string deep = "{}";
  for (int i = 0; i < 70; ++i) deep = "{\"items\": " + deep + "}";
  EXPECT_NE(error_of(schema(deep)).find("64 levels"), std::string::npos);
  EXPECT_NE(error_of(schema(std::string(200000, '['))).find("levels"), std::string::npos);
  Json many = {{"anyOf", Json::array()}};
  for (int i = 0; i < 4100; ++i) many["anyOf"].push_back(Json::object());
  EXPECT_NE(error_of(schema(many.dump())).find("4096"), std::string::npos);
  Json values = {{"enum", Json::array()}};
  for (int i = 0; i < 10001; ++i) values["enum"].push_back(i);
  EXPECT_NE(error_of(schema(values.dump())).find("10000"), std::string::npos);
}

const char* const kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
     "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}, "unit": {"enum": ["C", "F"]},
     "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
  {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "properties": {
     "list": {"type": "array", "uniqueItems": true}}}}}])";

TEST(Grammar, ToolCallsAreCalls) {
  const Tokenizer& tokenizer = demo_tokenizer();
  auto run = [&](const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
    GrammarState state(grammar);
    const std::vector<int32_t> tokens = tokenizer.encode(text).value();
    for (const int32_t t : tokens)
      if (!has(mask_of(state), t) || !state.advance(t)) return false;
    return state.may_end();
  };
  const auto all = compile({Kind::kToolCalls, kTools, {}}).value();
  EXPECT_TRUE(run(all, "<tool_call>now</tool_call>"));
  EXPECT_TRUE(run(all, "<tool_call>now</tool_call><tool_call>now</tool_call>"));
  EXPECT_TRUE(run(all, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a <b> é\"</arg_value></tool_call>"));
  EXPECT_TRUE(
      run(all,
          "<tool_call>get_weather<arg_key>city</arg_key><arg_value></arg_value><arg_key>unit</arg_key><arg_value>"
          "C</arg_value><arg_key>where</arg_key><arg_value>{\"lat\": 1.5}</arg_value></tool_call>"));
  EXPECT_TRUE(run(all, "<tool_call>odd<arg_key>list</arg_key><arg_value>[1, 1]</arg_value></tool_call>"));
  EXPECT_FALSE(run(all, ""));
  EXPECT_FALSE(run(all, "now"));
  EXPECT_FALSE(run(all, "<tool_call>nothing</tool_call>"));
  EXPECT_FALSE(run(all, "<tool_call>get_weather</tool_call>"));
  EXPECT_FALSE(
      run(all,
          "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x</arg_value><arg_key>days</arg_key><arg_value>9"
          "</arg_value></tool_call>"));
  EXPECT_FALSE(run(all, "<tool_call>odd<arg_key>list</arg_key><arg_value>1</arg_value></tool_call>"));
  const auto single = compile({Kind::kToolCalls, kTools, {"now"}, false}).value();
  EXPECT_TRUE(run(single, "<tool_call>now</tool_call>"));
  EXPECT_FALSE(run(single, "<tool_call>now</tool_call><tool_call>now</tool_call>"));
  EXPECT_FALSE(run(single, "<tool_call>odd</tool_call>"));
  // The tags are tokens: spelled out they are no tags, and none can be forged inside a value.
  GrammarState state(single);
  EXPECT_FALSE(state.advance(tokenizer.id_of("<")));
  EXPECT_NE(error_of({Kind::kToolCalls, kTools, {"other"}}).find("tool_choice"), std::string::npos);
  EXPECT_NE(error_of({Kind::kToolCalls,
                      R"([{"name": "s", "strict": true, "parameters": {"properties": {"a": {"not": {}}}}}])",
                      {}})
                .find("not"),
            std::string::npos);
}

// Whatever comes out under the mask is read as calls, with arguments of the right types.
TEST(Grammar, ATextOrCalls) {
  auto run = [&](const GrammarSource& source, const std::string& text) {
    GrammarState state(compile(source).value());
    const std::vector<int32_t> tokens = demo_tokenizer().encode(text).value();
    for (const int32_t t : tokens)
      if (!has(mask_of(state), t) || !state.advance(t)) return false;
    return state.may_end();
  };
  const std::string call = "<tool_call>now</tool_call>";
  GrammarSource source{.kind = Kind::kJsonObject, .text = "", .choices = {}};
  source.tools = R"([{"type": "function", "function": {"name": "now"}}])";
  for (const std::string& text : {std::string("{}"), std::string(R"({"a": 1})"), call, call + call})
    EXPECT_TRUE(run(source, text)) << text;
  for (const std::string& text :
       {std::string("Hi"), std::string(), "{}" + call, call + "{}", std::string("<tool_call>other</tool_call>")})
    EXPECT_FALSE(run(source, text)) << text;
  source.parallel = false;
  EXPECT_TRUE(run(source, call));
  EXPECT_FALSE(run(source, call + call));
  source.kind = Kind::kRegex, source.text = "[a-c]{3}";
  EXPECT_TRUE(run(source, "abc") && run(source, call));
  EXPECT_FALSE(run(source, "ab") || run(source, "{}"));
}

TEST(Grammar, ToolCallsUnderTheMaskCanBeRead) {
  const auto grammar = compile({Kind::kToolCalls, kTools, {}}).value();
  int calls = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const std::string text = random_walk(grammar, 400);
    if (text.empty()) continue;
    const ParsedText out = parse_output("</think>" + text, kTools, CallNames::kDeclared);
    ASSERT_EQ(out.content, "") << text;
    ASSERT_FALSE(out.calls.empty()) << text;
    for (const ParsedCall& call : out.calls) {
      JsonFollower scanner;
      scanner.push(call.arguments);
      ASSERT_TRUE(scanner.complete() && scanner.type() == JsonTypes::kObject) << text;
      const Json arguments = Json::parse(call.arguments, nullptr, false);
      if (arguments.is_discarded()) continue;  // the library refuses 1e999
      if (call.name == "get_weather") {
        ASSERT_TRUE(arguments.contains("city") && arguments["city"].is_string()) << text;
      }
      if (arguments.contains("days")) {
        ASSERT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 7) << text;
      }
      if (arguments.contains("where")) {
        ASSERT_TRUE(arguments["where"]["lat"].is_number()) << text;
      }
      ++calls;
    }
  }
  EXPECT_GT(calls, 30);
}

TEST(GrammarCache, CompilesOnceAndForgetsTheOldest) {
  GrammarCache cache(demo_tokenizer(), {}, 1 << 20, 2);
  std::vector<std::shared_ptr<const Grammar>> got(8);
  std::vector<std::thread> threads;
  for (auto& g : got) threads.emplace_back([&] { g = cache.get({Kind::kJsonObject, "", {}}).value(); });
  for (std::thread& t : threads) t.join();
  for (const auto& g : got) EXPECT_EQ(g, got[0]);
  EXPECT_EQ(cache.counts().compiled, 1);
  EXPECT_FALSE(cache.get(regex("(")).is_ok());
  EXPECT_EQ(cache.counts().failed, 1);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(cache.get(regex(fmt::format("(?:ab){{{}}}", 500 + i))).is_ok());
  EXPECT_LE(cache.counts().bytes, 1 << 20);
  EXPECT_LT(cache.counts().entries, 40);
  EXPECT_EQ(cache.counts().compiled, 41);
  cache.get({Kind::kJsonObject, "", {}}).value();
  EXPECT_EQ(cache.counts().compiled, 42);  // it had been thrown out
}

}  // namespace
}  // namespace lathe
