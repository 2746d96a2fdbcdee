#include "serve/fields.h"

#include <gtest/gtest.h>

#include "testing/test_server.h"

// The table of fields is what requests are held to: every bound, type and default of every row, over HTTP.
namespace lathe::serve {
namespace {

using testing::HttpAnswer;
using testing::Script;
using testing::TestServer;

struct Target {
  Api api;
  const char* path;
  Json body;
};

const std::vector<Target>& targets() {
  static const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  static const std::vector<Target> all = {
      {kChat, "/v1/chat/completions", {{"messages", messages}}},
      {kCompletions, "/v1/completions", {{"prompt", "Once"}}},
      {kResponses, "/v1/responses", {{"input", "Hi"}}},
      {kMessages, "/v1/messages", {{"messages", messages}, {"max_tokens", 20}}},
      {kCountTokens, "/v1/messages/count_tokens", {{"messages", messages}}},
      {kRender, "/v1/chat/completions/render", {{"messages", messages}}},
      {kTokenize, "/tokenize", {{"prompt", "Once"}}},
      {kDetokenize, "/detokenize", {{"tokens", {1, 2, 3}}}},
  };
  return all;
}

class FieldTable : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer({.replies = {{.when = "", .text = "Well.</think>Hello."}}}); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static HttpAnswer send(const Target& t, const std::string& field, const std::string& value) {
    Json body = t.body;
    body.erase(field);
    std::string text = dump(body);
    text.pop_back();
    if (text.size() > 1) text += ",";
    return server_->post(t.path, text + "\"" + field + "\":" + value + "}");
  }
  // A value that has to be refused, with the field's name.
  static void refused(const Target& t, const Field& f, const std::string& value) {
    const HttpAnswer a = send(t, f.name, value);
    EXPECT_EQ(a.status, 400) << t.path << " " << f.name << " = " << value << ": " << a.body;
    EXPECT_NE(a.body.find(f.name), std::string::npos) << a.body;
  }
  static void taken(const Target& t, const Field& f, const std::string& value) {
    const HttpAnswer a = send(t, f.name, value);
    EXPECT_EQ(a.status, 200) << t.path << " " << f.name << " = " << value << ": " << a.body;
  }
  // Fields whose value depends on others: their bounds have tests of their own.
  static bool depends(const std::string& name) {
    for (const char* other : {"top_logprobs", "min_tokens", "best_of", "echo", "background", "store", "suffix",
                              "previous_response_id", "model", "timeout_ms", "stream_options", "logit_bias", "tokens",
                              "guided_grammar", "guided_regex", "guided_choice", "guided_json"})
      if (name == other) return true;
    return false;
  }
  static TestServer* server_;
};
TestServer* FieldTable::server_ = nullptr;

template <class F>
void for_each_row(const F& f) {
  for (const Target& t : targets())
    for (const Field& field : field_table())
      if (field.apis & t.api) f(t, field);
}

TEST_F(FieldTable, IntegersAreHeldToTheirBounds) {
  int rows = 0;
  for_each_row([&](const Target& t, const Field& f) {
    if (f.type != FieldType::kInteger) return;
    ++rows;
    for (const char* wrong : {"\"1\"", "true", "1.5", "[1]", "{}"}) refused(t, f, wrong);
    EXPECT_EQ(send(t, f.name, "1e999").status, 400) << f.name;
    refused(t, f, fmt::format("{}", static_cast<int64_t>(f.low) - 1));
    if (depends(f.name)) return;
    taken(t, f, fmt::format("{}", static_cast<int64_t>(f.low)));
    taken(t, f, fmt::format("{}.0", static_cast<int64_t>(f.low)));
    if (std::string(f.fallback) != "required") taken(t, f, "null");
    taken(t, f, fmt::format("{}", static_cast<int64_t>(f.high)));
    if (f.high < 2e9) refused(t, f, fmt::format("{}", static_cast<int64_t>(f.high) + 1));
    refused(t, f, "99999999999");
    refused(t, f, "1e300");
  });
  EXPECT_GT(rows, 20);
}

TEST_F(FieldTable, NumbersAreHeldToTheirBounds) {
  int rows = 0;
  for_each_row([&](const Target& t, const Field& f) {
    if (f.type != FieldType::kNumber) return;
    ++rows;
    for (const char* wrong : {"\"1\"", "true", "[1]", "1e999", "-1e999", "NaN", "Infinity"})
      EXPECT_EQ(send(t, f.name, wrong).status, 400) << f.name << wrong;
    taken(t, f, fmt::format("{}", f.high));
    refused(t, f, fmt::format("{}", f.high + 1e-9));
    f.above_low ? refused(t, f, fmt::format("{}", f.low)) : taken(t, f, fmt::format("{}", f.low));
    if (f.above_low) taken(t, f, fmt::format("{}", f.low + 1e-3));
    refused(t, f, fmt::format("{}", f.low - 1e-9));
    taken(t, f, "null");
  });
  EXPECT_GE(rows, 24);
}

TEST_F(FieldTable, BooleansStringsAndListsHaveOneType) {
  for_each_row([&](const Target& t, const Field& f) {
    switch (f.type) {
      case FieldType::kBoolean:
        for (const char* wrong : {"1", "\"true\"", "[]"}) refused(t, f, wrong);
        if (!depends(f.name)) taken(t, f, "true"), taken(t, f, "false");
        break;
      case FieldType::kString:
        for (const char* wrong : {"1", "true", "{}", "[\"a\"]"}) refused(t, f, wrong);
        if (f.low != f.high) refused(t, f, "\"" + std::string(static_cast<size_t>(f.high) + 1, 'a') + "\"");
        if (f.low > 0) refused(t, f, "\"\"");
        break;
      case FieldType::kObject:
        for (const char* wrong : {"1", "\"x\"", "[]", "true"}) refused(t, f, wrong);
        break;
      case FieldType::kArray:
        for (const char* wrong : {"1", "\"x\"", "{}", "true"}) refused(t, f, wrong);
        break;
      case FieldType::kIntegers:
        for (const char* wrong : {"1", "\"x\"", "[\"1\"]", "[1.5]", "[-1]", "[99999999999]"}) refused(t, f, wrong);
        break;
      case FieldType::kStrings:
        for (const char* wrong : {"1", "{}", "[1]"}) refused(t, f, wrong);
        break;
      case FieldType::kSeed:
        for (const char* good : {"0", "-1", "18446744073709551615", "-9223372036854775808"}) taken(t, f, good);
        for (const char* wrong : {"1.5", "\"1\"", "1e30", "18446744073709551616"}) refused(t, f, wrong);
        break;
      case FieldType::kIgnored:
        taken(t, f, "\"x\""), taken(t, f, "{\"a\": 1}");
        break;
      default:
        break;
    }
  });
}

TEST_F(FieldTable, StopStrings) {
  const Target &chat = targets()[0], &messages = targets()[3];
  const auto list = [](int n, size_t bytes) {
    Json all = Json::array();
    for (int i = 0; i < n; ++i) all.push_back(std::string(bytes, 'x'));
    return dump(all);
  };
  EXPECT_EQ(send(chat, "stop", list(16, 256)).status, 200);
  EXPECT_EQ(send(chat, "stop", list(17, 1)).status, 400);
  EXPECT_EQ(send(chat, "stop", list(1, 257)).status, 400);
  EXPECT_EQ(send(chat, "stop", list(1, 0)).status, 400);
  EXPECT_EQ(send(messages, "stop_sequences", list(17, 1)).status, 400);
  Json ids = Json::array();
  for (int i = 0; i < 64; ++i) ids.push_back(i);
  EXPECT_EQ(send(chat, "stop_token_ids", dump(ids)).status, 200);
  ids.push_back(64);
  EXPECT_EQ(send(chat, "stop_token_ids", dump(ids)).status, 400);
  EXPECT_EQ(send(chat, "stop_token_ids", "[2560]").status, 400) << "beyond the vocabulary";
}

TEST_F(FieldTable, LogitBias) {
  const Target& chat = targets()[0];
  EXPECT_EQ(send(chat, "logit_bias", R"({"0": -100, "2559": 100})").status, 200);
  for (const char* wrong : {R"({"2560": 1})", R"({"-1": 1})", R"({"x": 1})", R"({"1.5": 1})", R"({"1": 100.5})",
                            R"({"1": "2"})", R"({"1": null})"})
    EXPECT_EQ(send(chat, "logit_bias", wrong).status, 400) << wrong;
  Json many = Json::object();
  for (int i = 0; i < 1024; ++i) many[std::to_string(i)] = 1;
  EXPECT_EQ(send(chat, "logit_bias", dump(many)).status, 200);
  many["1024"] = 1;
  EXPECT_EQ(send(chat, "logit_bias", dump(many)).status, 400);
}

TEST_F(FieldTable, FieldsThatDependOnOthers) {
  const Target &chat = targets()[0], &completions = targets()[1], &responses = targets()[2];
  EXPECT_EQ(send(chat, "top_logprobs", "3").status, 400);
  EXPECT_EQ(send(chat, "top_logprobs", "3,\"logprobs\":true").status, 200);
  EXPECT_EQ(send(chat, "top_logprobs", "21,\"logprobs\":true").status, 400);
  EXPECT_EQ(send(chat, "stream_options", "{\"include_usage\":true}").status, 400);
  EXPECT_EQ(send(chat, "stream_options", "{\"include_usage\":1},\"stream\":true").status, 400);
  EXPECT_EQ(send(chat, "min_tokens", "5,\"max_tokens\":4").status, 400);
  EXPECT_EQ(send(chat, "min_tokens", "4,\"max_tokens\":4").status, 200);
  EXPECT_EQ(send(completions, "best_of", "2").status, 400);
  EXPECT_EQ(send(completions, "best_of", "2,\"n\":2").status, 200);
  EXPECT_EQ(send(completions, "echo", "true").status, 400);
  EXPECT_EQ(send(completions, "suffix", "\"x\"").status, 400);
  EXPECT_EQ(send(responses, "store", "true").status, 400);
  EXPECT_EQ(send(responses, "store", "false").status, 200);
  EXPECT_EQ(send(responses, "background", "true").status, 400);
  EXPECT_EQ(send(responses, "previous_response_id", "\"resp_1\"").status, 400);
  EXPECT_EQ(send(chat, "model", "\"demo\"").status, 200);
  EXPECT_EQ(send(chat, "model", "\"other\"").status, 404);
}

TEST_F(FieldTable, UnknownFieldsAreCountedOrRefused) {
  EXPECT_EQ(send(targets()[0], "no_such_field", "1").status, 200);
  EXPECT_NE(
      server_->get("/metrics")
          .body.find("lathe_unknown_fields_total{model=\"demo\",role=\"all\",route=\"/v1/chat/completions\"} 1\n"),
      std::string::npos);
  TestServer strict({.replies = {{.when = "", .text = "Hi"}}}, {.reject_unknown_fields = true});
  const HttpAnswer a =
      strict.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "no_such_field": 1})");
  EXPECT_EQ(a.status, 400);
  EXPECT_EQ(Json::parse(a.body)["error"]["param"], "no_such_field");
}

TEST(Body, WhatIsNoJsonObjectIsRefused) {
  for (const char* text : {"", "{", "[]", "1", "null", "\"x\"", "{\"a\": 1e999}", "{\"a\": NaN}", "{\"a\": \"\xff\"}",
                           "{\"a\": \"\\ud800\"}", "{}x"}) {
    Errors errors;
    parse_body(text, errors);
    EXPECT_TRUE(errors.any()) << text;
  }
}

TEST(Body, DepthEndsAt64) {
  for (int depth : {64, 65}) {
    Errors errors;
    parse_body("{\"a\":" + std::string(static_cast<size_t>(depth - 1), '[') +
                   std::string(static_cast<size_t>(depth - 1), ']') + "}",
               errors);
    EXPECT_EQ(errors.any(), depth > 64);
  }
  Errors errors;
  parse_body("{\"a\": \"" + std::string(100000, '[') + "\"}", errors);
  EXPECT_FALSE(errors.any()) << "brackets in a string are text";
  Errors deep;
  parse_body(std::string(30'000'000, '['), deep);
  EXPECT_TRUE(deep.any());
}

TEST(Fields, EveryRowSaysWhatItIs) {
  for (const Field& f : field_table()) {
    EXPECT_NE(std::string(f.meaning), "") << f.name;
    EXPECT_NE(f.apis, 0u) << f.name;
    for (const Field& other : field_table())
      EXPECT_TRUE(&f == &other || std::string(f.name) != other.name || (f.apis & other.apis) == 0) << f.name;
  }
}

}  // namespace
}  // namespace lathe::serve
