#include "text/grammar/json_rules.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/grammar/regex.h"
#include "text/json_text.h"

namespace lathe {

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out + '"';
}

int32_t JsonRules::of_regex(const std::string& pattern) {
  const auto [at, is_new] = of_regex_.try_emplace(pattern, -1);
  if (is_new) {
    const Result<Expression> e = parse_regex(pattern, RegexMatch::kWhole);
    LATHE_CHECK(e.is_ok());
    at->second = builder_->add_rule(pattern);
    const auto rule = builder_->rule(at->second);
    add_expression(*builder_, rule.begin, *e, rule.end, Writing::kPlain);
  }
  return at->second;
}

int32_t JsonRules::number() { return of_regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"); }
int32_t JsonRules::integer() { return of_regex("-?(?:0|[1-9][0-9]*)"); }
int32_t JsonRules::written_string() {
  return of_regex("\"(?:[^\\x00-\\x1f\"\\\\]|\\\\[\"\\\\bfnrt]|\\\\u00[01][0-9a-f])*\"");
}

int32_t JsonRules::space() {
  if (space_ < 0) {
    space_ = of_regex("(?: |\n(?: {0,40}|\t{1,10}))?");
  }
  return space_;
}

int32_t JsonRules::after_space(int32_t from) {
  const int32_t to = builder_->add_state();
  builder_->call(from, space(), to);
  return to;
}

int32_t JsonRules::string() {
  if (string_ < 0) {
    string_ = builder_->add_rule("string");
    add_string(string_);
  }
  return string_;
}

// One tick a character: at its first byte.
void JsonRules::add_string(int32_t r) {
  AutomatonBuilder& b = *builder_;
  const auto rule = b.rule(r);
  constexpr uint8_t kTick = Automaton::kTick;
  const int32_t inside = b.add_state();
  b.range(rule.begin, '"', '"', inside);
  b.range(inside, '"', '"', rule.end, Automaton::kNeedsMin);
  b.range(inside, 0x20, 0x21, inside, kTick);
  b.range(inside, 0x23, 0x5b, inside, kTick);
  b.range(inside, 0x5d, 0x7f, inside, kTick);
  // UTF-8
  const int32_t one = b.add_state(), two = b.add_state(), three = b.add_state();  // bytes to come
  b.range(one, 0x80, 0xbf, inside);
  b.range(two, 0x80, 0xbf, one);
  b.range(three, 0x80, 0xbf, two);
  auto first_two = [&](Symbol lead_low, Symbol lead_high, Symbol low, Symbol high, int32_t then) {
    const int32_t next = b.add_state();
    b.range(inside, lead_low, lead_high, next, kTick);
    b.range(next, low, high, then);
  };
  b.range(inside, 0xc2, 0xdf, one, kTick);
  first_two(0xe0, 0xe0, 0xa0, 0xbf, one);
  b.range(inside, 0xe1, 0xec, two, kTick);
  first_two(0xed, 0xed, 0x80, 0x9f, one);
  b.range(inside, 0xee, 0xef, two, kTick);
  first_two(0xf0, 0xf0, 0x90, 0xbf, two);
  b.range(inside, 0xf1, 0xf3, three, kTick);
  first_two(0xf4, 0xf4, 0x80, 0x8f, two);
  // Escapes; halves of surrogate pairs come in pairs.
  const int32_t escape = b.add_state();
  b.range(inside, '\\', '\\', escape, kTick);
  for (const char c : std::string_view("\"\\/bfnrt"))
    b.range(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), inside);
  auto digits = [&](int32_t from, std::string_view set, int32_t to) {
    for (const char c : set) b.range(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const int32_t four = b.add_state(), hex3 = b.add_state(), hex2 = b.add_state(), hex1 = b.add_state(),
                d = b.add_state();
  b.range(escape, 'u', 'u', four);
  digits(four, "0123456789abcefABCEF", hex3);
  digits(four, "dD", d);
  digits(d, "01234567", hex2);
  digits(hex3, kHex, hex2);
  digits(hex2, kHex, hex1);
  digits(hex1, kHex, inside);
  const int32_t high2 = b.add_state(), high1 = b.add_state(), low4 = b.add_state();
  digits(d, "89abAB", high2);
  digits(high2, kHex, high1);
  digits(high1, kHex, low4);
  const int32_t low_d = b.text(low4, "\\u"), low3 = b.add_state();
  digits(low_d, "dD", low3);
  digits(low3, "cdefCDEF", hex2);
}

int32_t JsonRules::any() {
  if (any_ >= 0) return any_;
  any_ = builder_->add_rule("any value");
  const auto rule = builder_->rule(any_);
  for (const int32_t kind : {string(), number(), object(), array()}) builder_->call(rule.begin, kind, rule.end);
  for (const char* word : {"true", "false", "null"}) builder_->text(rule.begin, word, rule.end);
  return any_;
}

int32_t JsonRules::object() {
  if (object_ >= 0) return object_;
  object_ = builder_->add_rule("any object");
  const auto rule = builder_->rule(object_);
  const int32_t open = after_space(builder_->text(rule.begin, "{"));
  const int32_t name = builder_->add_state(), key = builder_->add_state(), value = builder_->add_state();
  builder_->empty(open, name);
  builder_->call(name, string(), key);
  builder_->call(after_space(builder_->text(key, ":")), any(), value);
  builder_->empty(after_space(builder_->text(value, ",")), name);
  builder_->text(open, "}", rule.end);
  builder_->text(after_space(value), "}", rule.end);
  return object_;
}

int32_t JsonRules::array() {
  if (array_ >= 0) return array_;
  array_ = builder_->add_rule("any array");
  const auto rule = builder_->rule(array_);
  const int32_t open = after_space(builder_->text(rule.begin, "["));
  const int32_t item = builder_->add_state(), value = builder_->add_state();
  builder_->empty(open, item);
  builder_->call(item, any(), value);
  builder_->empty(after_space(builder_->text(value, ",")), item);
  builder_->text(open, "]", rule.end);
  builder_->text(after_space(value), "]", rule.end);
  return array_;
}

int32_t JsonRules::after_value(int32_t from, const nlohmann::ordered_json& value) {
  AutomatonBuilder& b = *builder_;
  if (value.is_string()) return b.text(from, json_quoted(value.get_ref<const std::string&>()));
  if (!value.is_structured()) return b.text(from, value.dump());
  const bool object = value.is_object();
  from = after_space(b.text(from, object ? "{" : "["));
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) from = after_space(b.text(from, ","));
    first = false;
    if (object) from = after_space(b.text(from, json_quoted(key) + ":"));
    from = after_value(from, item);
  }
  return b.text(first ? from : after_space(from), object ? "}" : "]");
}

}  // namespace lathe
