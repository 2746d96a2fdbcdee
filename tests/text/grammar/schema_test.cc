// JSON Schema: what passes is valid. Judged by a validator of its own, written against the specification.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "testing/golden.h"
#include "text/grammar/texts.h"
#include "text/pattern.h"
#include "text/utf8.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarSource::Kind;
using testing::compile, testing::demo_tokenizer, testing::demo_trie, testing::has, testing::mask_of, testing::takes;

std::mt19937& rng() {
  static std::mt19937 random(5);
  return random;
}
size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng()); }
template <class T>
const T& any_of(const std::vector<T>& v) {
  return v[below(v.size())];
}

// ---- the validator

bool matches(const std::string& pattern, const std::string& text) {
  const auto p = Pattern::compile(pattern, "test");
  LATHE_CHECK(p.is_ok());
  auto scratch = p->make_scratch();
  size_t begin, end;
  return p->search(text, 0, scratch, begin, end) == Pattern::Found::kMatch;
}

bool is_type(const Json& v, const std::string& type) {
  if (type == "integer")
    return v.is_number_integer() || (v.is_number() && std::floor(v.get<double>()) == v.get<double>());
  if (type == "number") return v.is_number();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  return type == "array" ? v.is_array() : v.is_object();
}

const Json* referenced(const Json& root, std::string reference) {
  if (const size_t space = reference.find("%20"); space != std::string::npos) reference.replace(space, 3, " ");
  return &root.at(Json::json_pointer(reference.substr(1)));
}

bool valid(const Json& root, const Json& s, const Json& v) {
  if (s.is_boolean()) return s.get<bool>();
  auto each = [&](const Json& schemas) {
    int n = 0;
    for (const Json& x : schemas) n += valid(root, x, v);
    return n;
  };
  for (const auto& [word, w] : s.items()) {
    bool ok = true;
    if (word == "$ref") ok = valid(root, *referenced(root, w), v);
    if (word == "type") {
      ok = false;
      for (const Json& t : w.is_array() ? w : Json::array({w})) ok |= is_type(v, t);
    }
    if (word == "enum") ok = std::find(w.begin(), w.end(), v) != w.end();
    if (word == "const") ok = v == w;
    if (word == "anyOf") ok = each(w) > 0;
    if (word == "oneOf") ok = each(w) == 1;
    if (word == "allOf") ok = each(w) == static_cast<int>(w.size());
    if (v.is_number()) {
      if (word == "minimum") ok = v >= w;
      if (word == "maximum") ok = v <= w;
      if (word == "exclusiveMinimum") ok = v > w;
      if (word == "exclusiveMaximum") ok = v < w;
    }
    if (v.is_string()) {
      const std::string text = v;
      if (word == "minLength") ok = utf8_length(text) >= w.get<size_t>();
      if (word == "maxLength") ok = utf8_length(text) <= w.get<size_t>();
      if (word == "pattern") ok = matches(w, text);
    }
    if (v.is_array()) {
      if (word == "minItems") ok = v.size() >= w.get<size_t>();
      if (word == "maxItems") ok = v.size() <= w.get<size_t>();
      for (size_t i = 0; i < v.size(); ++i) {
        const size_t given = s.contains("prefixItems") ? s["prefixItems"].size() : 0;
        if (word == "prefixItems" && i < given) ok = ok && valid(root, w[i], v[i]);
        if (word == "items" && i >= given) ok = ok && valid(root, w, v[i]);
      }
    }
    if (v.is_object()) {
      if (word == "required")
        for (const Json& name : w) ok = ok && v.contains(name.get<std::string>());
      for (const auto& [key, item] : v.items()) {
        const bool declared = s.contains("properties") && s["properties"].contains(key);
        bool by_pattern = false;
        if (s.contains("patternProperties"))
          for (const auto& [p, inner] : s["patternProperties"].items()) {
            if (!matches(p, key)) continue;
            by_pattern = true;
            if (word == "patternProperties") ok = ok && valid(root, inner, item);
          }
        if (word == "properties" && declared) ok = ok && valid(root, w[key], item);
        if (word == "additionalProperties" && !declared && !by_pattern) ok = ok && valid(root, w, item);
      }
    }
    if (!ok) return false;
  }
  return true;
}

// ---- writing

// A value as a model may write it: anything that the white space of JsonRules allows.
std::string written(const Json& v) {
  auto space = [] { return any_of<std::string>({"", "", "", " ", "\n", "\n  ", "\n\t"}); };
  if (!v.is_structured()) return v.dump();
  std::string out = v.is_object() ? "{" : "[";
  out += space();
  bool first = true;
  for (const auto& [key, item] : v.items()) {
    if (!first) out += "," + space();
    first = false;
    if (v.is_object()) out += Json(key).dump() + ":" + space();
    out += written(item);
  }
  if (!first) out += space();
  return out + (v.is_object() ? "}" : "]");
}

void expect_values(const std::string& schema, const std::vector<std::string>& yes, const std::vector<std::string>& no) {
  const auto grammar = compile({Kind::kJsonSchema, schema, {}});
  ASSERT_TRUE(grammar.is_ok()) << schema << ": " << grammar.status().message();
  const Json root = Json::parse(schema);
  for (const std::string& text : yes) {
    EXPECT_TRUE(valid(root, root, Json::parse(text))) << schema << " the test is wrong about " << text;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(takes(*grammar, text, rng())) << schema << " should take " << text;
  }
  for (const std::string& text : no)
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(takes(*grammar, text, rng())) << schema << " should refuse " << text;
}

std::string error_of(const std::string& schema) {
  const auto grammar = compile({Kind::kJsonSchema, schema, {}});
  return grammar.is_ok() ? "compiled" : grammar.status().message();
}

TEST(Schema, Types) {
  expect_values("true", {"1", "\"a\"", "{\"a\": []}"}, {"", "x", "1 "});
  expect_values("{}", {"null"}, {"nul"});
  expect_values(R"({"type": "null"})", {"null"}, {"0"});
  expect_values(R"({"type": "boolean"})", {"true", "false"}, {"True", "1"});
  expect_values(R"({"type": "integer"})", {"0", "-12", "123456789012345678901234567890"},
                {"01", "1.0", "+1", "-", "1e2"});
  expect_values(R"({"type": "number"})", {"0.5", "-1e-7", "12E+3"}, {".5", "1.", "NaN", "1e"});
  expect_values(R"({"type": ["string", "null"], "description": "d", "default": 1, "title": "t", "examples": []})",
                {"null", "\"\""}, {"0"});
  expect_values(R"({"type": "array"})", {"[]", "[1, [\"a\"]]"}, {"{}", "[1,]", "[,1]"});
  expect_values(R"({"type": "object"})", {"{}", "{\"a\":{}}"}, {"[]"});
}

TEST(Schema, Strings) {
  expect_values(R"({"type": "string"})", {R"("a\"\\\/\b\u00E9\ud83d\udE00é😀")"},
                {R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\t\"", "'a'"});
  expect_values(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"é😀x\"", R"("\n\ud83d\ude00")"},
                {"\"a\"", "\"abcd\"", R"("\u00e9")", R"("\n\n\n\n")"});
  expect_values(R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""});
  expect_values(R"({"type": "string", "minLength": 40})", {fmt::format("\"{:a>40}\"", "")},
                {fmt::format("\"{:a>39}\"", "")});
  expect_values(R"({"type": "string", "maxLength": 60})", {fmt::format("\"{:a>60}\"", "")},
                {fmt::format("\"{:a>61}\"", "")});
  expect_values(R"({"pattern": "^a+b?$"})", {"\"aab\"", "\"a\""}, {"\"b\"", "\"xa\"", "1"});
  expect_values(R"({"type": "string", "pattern": "b\"|\\\\\\n"})", {R"("ab\"c")", R"("\\\n")", R"("x\\\ny")"},
                {"\"a\"", "\"b\""});
  expect_values(R"({"type": "string", "pattern": "[0-9]$", "maxLength": 3, "minLength": 2})",
                {"\"a1\"", "\"ab1\"", "\"é\\n1\""}, {"\"1\"", "\"abc1\"", "\"ab\""});
  expect_values(R"({"type": "string", "format": "date"})", {"\"2024-02-28\"", "\"1999-12-31\""},
                {"\"2024-02-30\"", "\"2024-13-01\"", "\"24-01-01\""});
  expect_values(R"({"type": "string", "format": "date-time"})",
                {"\"2024-02-28T23:59:59Z\"", "\"2024-02-28T23:59:59.25+01:00\""},
                {"\"2024-02-28\"", "\"2024-02-28T25:00:00Z\""});
  expect_values(R"({"type": "string", "format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""},
                {"\"123e4567\""});
  expect_values(R"({"type": "string", "format": "email"})", {"\"a.b+c@d-e.org\""},
                {"\"a@b\"", "\"@b.c\"", "\"a..b@c.d\""});
  expect_values(R"({"type": "string", "format": "ipv4"})", {"\"255.0.10.1\""},
                {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
  expect_values(R"({"type": "string", "format": "ipv6"})", {"\"::1\"", "\"2001:db8::8:800:200c:417a\"", "\"::\""},
                {"\":::\"", "\"12345::\"", "\"1:2:3\""});
  expect_values(R"({"type": "string", "format": "duration"})", {"\"P1Y2M3DT4H\"", "\"PT5S\"", "\"P3W\""},
                {"\"P\"", "\"PT\"", "\"1D\""});
  expect_values(R"({"type": "string", "format": "hostname"})", {"\"a-b.example\""}, {"\"-a\"", "\"a..b\""});
  expect_values(R"({"type": "string", "format": "time"})", {"\"10:20:30Z\""}, {"\"10:20\""});
  expect_values(R"({"type": "string", "format": "uri"})", {"\"https://a.example:80/b%20c?d=e#f\"", "\"urn:a:b\""},
                {"\"a\"", "\"http://a b\""});
}

TEST(Schema, Constants) {
  expect_values(R"({"enum": ["a", 1, null, {"k": [1, "x"]}, []]})", {"\"a\"", "1", "null", "{\"k\": [1, \"x\"]}", "[]"},
                {"\"b\"", "{\"k\":[1]}"});
  expect_values(R"({"enum": ["a", 1], "type": "string"})", {"\"a\""}, {"1"});
  expect_values(R"({"const": "é\"\n"})", {R"("é\"\n")"}, {"\"e\""});
  expect_values(R"({"const": 1.5})", {"1.5"}, {"1.50"});
}

TEST(Schema, IntegersBetweenBounds) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {-5, 120}, {7, 7}, {99, 1001}, {-1000, -9}, {-10, 0}, {18, 65}, {1, 12}}) {
    const auto grammar =
        compile({Kind::kJsonSchema, Json{{"type", "integer"}, {"minimum", low}, {"maximum", high}}.dump(), {}}).value();
    for (int n = -1200; n <= 1200; ++n)
      ASSERT_EQ(takes(grammar, std::to_string(n), rng()), n >= low && n <= high) << n << " in " << low << ".." << high;
    ASSERT_FALSE(takes(grammar, "-0", rng()));
  }
  expect_values(R"({"type": "integer", "exclusiveMinimum": 3, "maximum": 9223372036854775})", {"4", "9223372036854775"},
                {"3", "9223372036854776"});
  expect_values(R"({"type": "integer", "minimum": 2.5})", {"3", "1234567890123456789012"}, {"2", "-3"});
  expect_values(R"({"type": "integer", "maximum": -2.5})", {"-3", "-100000000000000000000000"}, {"-2", "3"});
  EXPECT_NE(error_of(R"({"type": "integer", "minimum": 5, "maximum": 4})").find("no text"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "integer", "minimum": 1e300})").find("minimum"), std::string::npos);
}

TEST(Schema, NumbersBetweenBounds) {
  const std::vector<double> bounds = {-20.5, -3, -0.25, 0, 0.05, 1, 1.5, 1.25, 12, 100.75};
  for (int trial = 0; trial < 60; ++trial) {
    Json s = {{"type", "number"}};
    if (below(4) != 0) s[below(2) ? "minimum" : "exclusiveMinimum"] = any_of(bounds);
    if (below(4) != 0 || s.size() == 1) s[below(2) ? "maximum" : "exclusiveMaximum"] = any_of(bounds);
    const auto grammar = compile({Kind::kJsonSchema, s.dump(), {}});
    for (int i = 0; i < 60; ++i) {
      std::string text = below(2) ? "-" : "";
      text += std::to_string(below(3) == 0 ? below(130) : below(4));
      if (below(3) != 0) {
        text += ".";
        for (size_t n = 1 + below(3); n > 0; --n) text += "0257"[below(4)];
      }
      const Json v = Json::parse(text);
      if (v == 0 && text.starts_with("-")) continue;
      const bool expected = valid(s, s, v);
      ASSERT_EQ(grammar.is_ok() && takes(*grammar, text, rng()), expected) << text << " in " << s.dump();
    }
  }
}

TEST(Schema, Objects) {
  const std::string s =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": true}, "required": ["b"]})";
  expect_values(
      s, {R"({"b": ""})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":[]})", R"({"b":"x","c":null})"},
      {"{}", R"({"a":1})", R"({"b":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({"b":"",})", R"({,"b":""})"});
  expect_values(R"({"properties": {"a": {}, "b": {}}})", {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
                {R"({"c":1})"});
  expect_values(
      R"({"type": "object", "properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
      {"{}", R"({"ab":null})", R"({"ab":null,"a":1,"abc":2})", R"({"b":1})", R"({"é\n":1})"},
      {R"({"ab":1})", R"({"x":null})", R"({"\u0061b":1})", R"({"x":1,"ab":1})"});
  expect_values(R"({"additionalProperties": {"type": "boolean"}})", {"{}", R"({"x":true,"y":false})"}, {R"({"x":1})"});
  expect_values(R"({"type": "object", "additionalProperties": false})", {"{}", "{\n}"}, {R"({"x":1})"});
  expect_values(R"({"required": ["x"]})", {R"({"x":[1]})", R"({"x":1,"y":2})"}, {"{}", R"({"y":1})"});
  expect_values(
      R"({"patternProperties": {"^n_": {"type": "number"}, "^s_": {"type": "string"}}, "properties": {"id": {"type": "null"}}, "additionalProperties": false})",
      {"{}", R"({"id":null,"n_a":1.5,"s_b":"x","n_":2})"}, {R"({"n_a":"x"})", R"({"x":1})", R"({"s_":1})"});
  expect_values(R"({"patternProperties": {"^n": {"type": "number"}}, "additionalProperties": {"type": "string"}})",
                {R"({"n":1,"a":"x"})"}, {R"({"n":"x"})", R"({"a":1})"});
  EXPECT_NE(error_of(R"({"properties": {"na": {}}, "patternProperties": {"^n": {}}})").find("declared property"),
            std::string::npos)
      << error_of(R"({"properties": {"na": {}}, "patternProperties": {"^n": {}}})");
  EXPECT_NE(error_of(R"({"patternProperties": {"a": {}, "b": {}}})").find("another pattern"), std::string::npos);
  EXPECT_NE(error_of(R"({"required": ["x"], "additionalProperties": false})").find("'x'"), std::string::npos);
}

TEST(Schema, Arrays) {
  expect_values(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
                {"[1]", "[1, 2,\n3]"}, {"[]", "[1,2,3,4]", "[null]"});
  expect_values(R"({"items": {"type": "string"}})", {"[]", "[\"a\",\"b\"]"}, {"[1]"});
  expect_values(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}})",
                {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"}, {"[\"a\"]", "[1,\"a\",1]"});
  expect_values(R"({"prefixItems": [{"type": "integer"}], "items": false, "minItems": 1})", {"[1]"}, {"[]", "[1,1]"});
  expect_values(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
  expect_values(R"({"type": "array", "minItems": 2, "items": {"enum": [1]}})", {"[1,1]", "[1,1,1,1,1]"}, {"[1]"});
  expect_values(R"({"type": "array", "uniqueItems": false})", {"[1,1]"}, {});
}

TEST(Schema, Combinations) {
  expect_values(R"({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]})", {"\"x\"", "4"}, {"2", "null"});
  expect_values(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
      {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}", R"({"a":""})"});
  expect_values(
      R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 5}, "b": {}}}]})",
      {R"({"a":5})", R"({"a":6,"b":null})"}, {R"({"a":4})", "{}"});
  expect_values(R"({"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}, {"maxLength": 4}]})",
                {"\"ab\"", "\"axxb\""}, {"\"axxxb\"", "\"b\""});
  expect_values(
      R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
                              {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "string"}}, "required": ["kind"]}, {"type": "null"}]})",
      {R"({"kind":"a","x":1})", R"({"kind":"b","y":""})", "null"},
      {R"({"kind":"a"})", R"({"kind":"b","x":1})", R"({"kind":"c"})"});
  expect_values(
      R"({"oneOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}, {"type": "object", "properties": {"b": {}}, "additionalProperties": false}]})",
      {R"({"a":1})", R"({"b":1})", "{}"}, {R"({"a":1,"b":1})"});
  EXPECT_NE(error_of(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})").find("told apart"), std::string::npos);
  EXPECT_NE(error_of(R"({"allOf": [{"type": "integer"}, {"type": "string"}]})").find("no text"), std::string::npos);
}

TEST(Schema, References) {
  expect_values(
      R"({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"]}}, "$ref": "#/$defs/node"})",
      {R"({"value":1,"next":null})", R"({"value":1,"next":{"value":2,"next":null}})"},
      {R"({"value":1})", R"({"value":1,"next":{}})"});
  expect_values(R"({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}})",
                {"{}", R"({"children":[{},{"children":[]}]})"}, {R"({"children":[1]})"});
  expect_values(
      R"({"definitions": {"a b": {"type": "string"}}, "properties": {"x": {"$ref": "#/definitions/a%20b", "minLength": 2}}})",
      {R"({"x":"ab"})"}, {R"({"x":"a"})"});
  EXPECT_NE(error_of(R"({"$ref": "other.json"})").find("inside the document"), std::string::npos);
  EXPECT_NE(error_of(R"({"$ref": "#/$defs/no"})").find("#/$defs/no"), std::string::npos);
  EXPECT_NE(error_of(R"({"$ref": "#"})").find("no text"), std::string::npos);
  EXPECT_NE(error_of(R"({"allOf": [{"$ref": "#"}]})").find("circle"), std::string::npos);
}

TEST(Schema, WhatIsNotSupportedIsListed) {
  const std::string e = error_of(
      R"({"type": "object", "properties": {"a": {"not": {}, "type": "string"}}, "if": {}, "minProperties": 1, "x-own": 1})");
  for (const char* word : {"#/properties/a/not", "#/if", "#/minProperties", "#/x-own"})
    EXPECT_NE(e.find(word), std::string::npos) << e;
  EXPECT_NE(error_of(R"({"type": "string", "format": "iri"})").find("iri"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "array", "uniqueItems": true})").find("uniqueItems"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "number", "multipleOf": 2})").find("multipleOf"), std::string::npos);
  EXPECT_NE(error_of(R"({"enum": ["a"], "minLength": 1})").find("minLength"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "strin"})").find("#/type"), std::string::npos);
  EXPECT_NE(error_of(R"({"minLength": -1})").find("#/minLength"), std::string::npos);
  EXPECT_NE(error_of(R"({"type")").find("JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"properties": {"a": {"pattern": "("}}})").find("pattern"), std::string::npos);
  EXPECT_NE(error_of("false").find("no text"), std::string::npos);
}

// ---- random schemas

struct Made {
  Json schema;
  std::function<Json()> instance;  // a valid one, its properties in the schema's order
};

Made made(int depth) {
  const size_t kind = below(depth > 0 ? 8 : 5);
  if (kind == 0) {
    const int low = static_cast<int>(below(50)) - 25, high = low + static_cast<int>(below(300));
    return {{{"type", "integer"}, {"minimum", low}, {"maximum", high}},
            [=] { return Json(low + static_cast<int>(below(high - low + 1))); }};
  }
  if (kind == 1) {
    const size_t low = below(4), high = low + below(30);
    return {{{"type", "string"}, {"minLength", low}, {"maxLength", high}}, [=] {
              std::string text;
              for (size_t n = low + below(high - low + 1); n > 0; --n)
                text += any_of<std::string>({"a", "é", "\"", "\n", "北", "😀", " ", "\\"});
              return Json(text);
            }};
  }
  if (kind == 2)
    return {{{"type", "string"}, {"pattern", "^[ab]{1,3}\\d*$"}},
            [] { return Json(any_of<std::string>({"a", "ab1", "bbb99"})); }};
  if (kind == 3) return {{{"enum", {"x", 1, nullptr, true}}}, [] { return any_of<Json>({"x", 1, nullptr, true}); }};
  if (kind == 4) return {{{"type", {"number", "null"}}}, [] { return any_of<Json>({1.5, -3, nullptr, 1e20}); }};
  if (kind == 5) {
    const Made item = made(depth - 1);
    const size_t low = below(3), high = low + below(3);
    return {{{"type", "array"}, {"items", item.schema}, {"minItems", low}, {"maxItems", high}}, [=] {
              Json list = Json::array();
              for (size_t n = low + below(high - low + 1); n > 0; --n) list.push_back(item.instance());
              return list;
            }};
  }
  if (kind == 6) {
    const Made a = made(depth - 1), b = made(depth - 1);
    return {{{"anyOf", {a.schema, b.schema}}}, [=] { return below(2) ? a.instance() : b.instance(); }};
  }
  std::vector<std::pair<std::string, Made>> properties;
  Json schema = {
      {"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}, {"additionalProperties", false}};
  for (size_t n = below(4); n > 0; --n) {
    const std::string name = any_of<std::string>({"a", "ab", "b", "é", "\"q"}) + std::to_string(n);
    properties.push_back({name, made(depth - 1)});
    schema["properties"][name] = properties.back().second.schema;
    if (below(2)) schema["required"].push_back(name);
  }
  return {schema, [=] {
            Json object = Json::object();
            for (const auto& [name, property] : properties) {
              const Json& required = schema["required"];
              if (below(2) || std::find(required.begin(), required.end(), Json(name)) != required.end())
                object[name] = property.instance();
            }
            return object;
          }};
}

// Changes something somewhere.
void mutate(Json& v) {
  if (v.is_structured() && !v.empty() && below(3) != 0) {
    auto at = v.begin();
    std::advance(at, below(v.size()));
    return mutate(*at);
  }
  switch (below(5)) {
    case 0:
      v = any_of<Json>({nullptr, 7, "zz", Json::array(), Json::object(), false, -1000});
      return;
    case 1:
      if (v.is_object())
        v["new"] = 1;
      else if (v.is_array())
        v.push_back(Json("new"));
      else
        v = "new";
      return;
    case 2:
      if (v.is_structured() && !v.empty()) v.erase(v.begin());
      return;
    case 3:
      if (v.is_number_integer()) v = v.get<int64_t>() + static_cast<int64_t>(below(600)) - 300;
      return;
    default:
      if (v.is_string()) v = v.get<std::string>() + std::string(below(40), 'k');
  }
}

TEST(Schema, RandomSchemasTakeWhatIsValidAndRefuseWhatIsNot) {
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const Made m = made(3);
    const auto grammar = compile({Kind::kJsonSchema, m.schema.dump(), {}});
    ASSERT_TRUE(grammar.is_ok()) << m.schema << grammar.status().message();
    for (int i = 0; i < 6; ++i) {
      Json v = m.instance();
      ASSERT_TRUE(valid(m.schema, m.schema, v)) << m.schema << v;
      const std::string text = written(v);
      ASSERT_TRUE(takes(*grammar, text, rng())) << m.schema << " should take " << text;
      ++accepted;
      mutate(v);
      if (valid(m.schema, m.schema, v)) continue;
      ASSERT_FALSE(takes(*grammar, v.dump(), rng())) << m.schema << " should refuse " << v;
      ++refused;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 200);
}

// Whatever the mask lets through is valid, and always comes to an end.
TEST(Schema, WalksUnderTheMaskAreValid) {
  int walked = 0;
  for (int trial = 0; trial < 80; ++trial) {
    const Made m = made(2);
    const auto grammar = compile({Kind::kJsonSchema, m.schema.dump(), {}}).value();
    GrammarState state(grammar);
    std::string text;
    for (int i = 0; i < 600 && !state.must_end() && !(state.may_end() && below(2)); ++i) {
      const std::vector<uint32_t> mask = mask_of(state);
      std::vector<int32_t> tokens;
      for (int32_t t = 0; t < demo_trie()->size(); ++t)
        if (has(mask, t)) tokens.push_back(t);
      ASSERT_FALSE(tokens.empty()) << m.schema << text;
      const int32_t token = tokens[below(tokens.size())];
      ASSERT_TRUE(state.advance(token));
      text += demo_tokenizer().vocabulary().bytes(token);
    }
    if (!state.may_end()) continue;  // digits without end, say
    const Json v = Json::parse(text, nullptr, false);
    if (v.is_discarded() && text.find_first_of("eE") != std::string::npos) continue;  // it refuses 1e999
    ASSERT_TRUE(!v.is_discarded() && valid(m.schema, m.schema, v)) << m.schema << " let through " << text;
    ++walked;
  }
  EXPECT_GT(walked, 50);
}

}  // namespace
}  // namespace lathe
