#include <gtest/gtest.h>

#include "serve/json.h"
#include "testing/test_server.h"

// /v1/chat/completions and /v1/completions over a scripted model.
namespace lathe::serve {
namespace {

using testing::event_data;
using testing::eventually;
using testing::HttpAnswer;
using testing::kChatPath;
using testing::Script;
using testing::TestServer;

Json body_of(const std::string& text, Json more = Json::object()) {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
  for (auto& [k, v] : more.items()) body[k] = v;
  return body;
}

const Json kWeather =
    Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "now"}}])");

// One choice, put together from a stream's chunks.
struct Collected {
  std::string role, content, reasoning, finish;
  Json calls = Json::array(), usage, logprobs = Json::array();
  int roles = 0, finishes = 0, usages = 0, chunks = 0;
  bool done = false, error = false;
};

Collected collect(const std::string& body, int choice = 0) {
  Collected c;
  for (const std::string& data : event_data(body)) {
    if (data == "[DONE]") {
      c.done = true;
      continue;
    }
    EXPECT_FALSE(c.done) << "something after [DONE]";
    const Json chunk = Json::parse(data);
    if (chunk.contains("error")) {
      c.error = true;
      continue;
    }
    ++c.chunks;
    if (chunk.contains("usage")) c.usage = chunk["usage"], ++c.usages;
    for (const Json& entry : chunk["choices"]) {
      if (entry["index"] != choice) continue;
      const Json& delta = entry["delta"];
      if (delta.contains("role")) c.role = delta["role"], ++c.roles;
      if (delta.contains("content")) c.content += delta["content"].get<std::string>();
      if (delta.contains("reasoning_content")) c.reasoning += delta["reasoning_content"].get<std::string>();
      if (entry["logprobs"].is_object())
        for (const Json& t : entry["logprobs"]["content"]) c.logprobs.push_back(t);
      if (delta.contains("tool_calls"))
        for (const Json& call : delta["tool_calls"]) {
          const size_t index = call["index"];
          if (index == c.calls.size())
            c.calls.push_back({{"id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
          c.calls[index]["arguments"] =
              c.calls[index]["arguments"].get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      if (!entry["finish_reason"].is_null()) c.finish = entry["finish_reason"], ++c.finishes;
    }
  }
  return c;
}

struct Case {
  const char* name;
  const char* text;  // behind the prompt's <think>
  Json more = Json::object();
};

std::vector<Case> cases() {
  return {
      {"plain", "I think.</think>Hello, wörld! 数字 🙂"},
      {"empty", ""},
      {"no answer", "Only thinking, on and on"},
      {"no thinking", "</think>At once."},
      {"length", "Some thoughts</think>And a longer answer that doesn't fit", {{"max_tokens", 7}}},
      {"stop", "So.</think>one two three four", {{"stop", {"three", "nothing"}}}},
      {"stop kept", "So.</think>one two three four", {{"stop", "three"}, {"include_stop_str_in_output", true}}},
      {"call",
       "Look.</think><tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value><arg_key>days</arg_key>"
       "<arg_value>3</arg_value></tool_call>",
       {{"tools", kWeather}}},
      {"text and two calls",
       "</think>I'll ask.<tool_call>now</tool_call><tool_call>weather<arg_key>city</arg_key>"
       "<arg_value>a \"quoted\" <b></arg_value></tool_call>",
       {{"tools", kWeather}}},
      {"one call only",
       "</think><tool_call>now</tool_call><tool_call>now</tool_call>",
       {{"tools", kWeather}, {"parallel_tool_calls", false}}},
      {"logprobs", "So.</think>Hello there", {{"logprobs", true}, {"top_logprobs", 2}}},
  };
}

// For every case and any grouping of tokens: chunks add up to the whole reply.
TEST(Chat, StreamEqualsWhole) {
  for (const Case& k : cases())
    for (uint64_t seed : {1, 2, 3, 4, 5}) {
      SCOPED_TRACE(fmt::format("{} {}", k.name, seed));
      TestServer server({.replies = {{.when = "", .text = k.text}},
                         .seed = seed,
                         .most_tokens = static_cast<int>(1 + seed % 4),
                         .cached_tokens = 3});
      Json body = body_of("Hi", k.more);
      const HttpAnswer whole = server.post(kChatPath, dump(body));
      ASSERT_EQ(whole.status, 200) << whole.body;
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
      const HttpAnswer stream = server.post(kChatPath, dump(body));
      ASSERT_EQ(stream.status, 200) << stream.body;
      const Json reply = Json::parse(whole.body);
      const Json& message = reply["choices"][0]["message"];
      const Collected c = collect(stream.body);
      EXPECT_TRUE(c.done);
      EXPECT_EQ(c.roles, 1);
      EXPECT_EQ(c.finishes, 1);
      EXPECT_EQ(c.usages, 1);
      EXPECT_EQ(c.role, "assistant");
      EXPECT_EQ(c.content, message["content"].is_null() ? "" : message["content"].get<std::string>());
      EXPECT_EQ(c.reasoning, message.value("reasoning_content", ""));
      EXPECT_EQ(c.finish, reply["choices"][0]["finish_reason"]);
      EXPECT_EQ(c.usage, reply["usage"]);
      if (reply["choices"][0]["logprobs"].is_object()) {
        EXPECT_EQ(c.logprobs, reply["choices"][0]["logprobs"]["content"]);
      }
      const Json calls = message.contains("tool_calls") ? message["tool_calls"] : Json::array();
      ASSERT_EQ(c.calls.size(), calls.size());
      for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(c.calls[i]["name"], calls[i]["function"]["name"]);
        EXPECT_EQ(c.calls[i]["arguments"], calls[i]["function"]["arguments"]);
        EXPECT_TRUE(Json::parse(calls[i]["function"]["arguments"].get<std::string>()).is_object());
      }
    }
}

TEST(Chat, WhatTheCasesSay) {
  auto reply = [](const char* text, Json more = Json::object()) {
    TestServer server({.replies = {{.when = "", .text = text}}});
    return Json::parse(server.post(kChatPath, dump(body_of("Hi", more))).body)["choices"][0];
  };
  Json c = reply("I think.</think>Hello, wörld!");
  EXPECT_EQ(c["message"]["content"], "Hello, wörld!");
  EXPECT_EQ(c["message"]["reasoning_content"], "I think.");
  EXPECT_EQ(c["finish_reason"], "stop");
  c = reply("So.</think>one two three four", {{"stop", "three"}});
  EXPECT_EQ(c["message"]["content"], "one two ");
  c = reply(
      "Look.</think><tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value><arg_key>days</"
      "arg_key><arg_value>3</arg_value></tool_call>",
      {{"tools", kWeather}});
  EXPECT_EQ(c["finish_reason"], "tool_calls");
  EXPECT_EQ(c["message"]["content"], nullptr);
  EXPECT_EQ(c["message"]["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(c["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            Json({{"city", "Köln"}, {"days", 3}}));
  c = reply("</think><tool_call>now</tool_call>", {{"tools", kWeather}, {"tool_choice", "none"}});
  EXPECT_FALSE(c["message"].contains("tool_calls"));
  c = reply("</think><tool_call>undeclared</tool_call>", {{"tools", kWeather}});
  EXPECT_FALSE(c["message"].contains("tool_calls"));
  EXPECT_EQ(c["finish_reason"], "stop");
}

TEST(Chat, ManyChoices) {
  TestServer server({.replies = {{.when = "", .text = "a</think>b c d"}}});
  const Json whole = Json::parse(server.post(kChatPath, dump(body_of("Hi", {{"n", 3}, {"seed", 7}}))).body);
  ASSERT_EQ(whole["choices"].size(), 3u);
  const std::string stream = server.post(kChatPath, dump(body_of("Hi", {{"n", 3}, {"stream", true}}))).body;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][static_cast<size_t>(i)]["index"], i);
    const Collected c = collect(stream, i);
    EXPECT_EQ(c.content, "b c d");
    EXPECT_EQ(c.roles, 1);
    EXPECT_EQ(c.finishes, 1);
  }
  EXPECT_EQ(server.service().seen()[0].n, 3);
  EXPECT_EQ(server.service().seen()[0].sampling.seed, 7u);
}

TEST(Chat, ContinuousUsageIsInEveryChunk) {
  TestServer server({.replies = {{.when = "", .text = "a</think>b c d"}}});
  const Collected c = collect(
      server
          .post(kChatPath,
                dump(body_of("Hi", {{"stream", true},
                                    {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})))
          .body);
  EXPECT_EQ(c.usages, c.chunks);
  EXPECT_GT(c.chunks, 3);
}

TEST(Chat, MaxTokens) {
  TestServer server(
      {.replies = {{.when = "", .text = "word ", .endless = true}}, .most_tokens = 50, .max_context = 200});
  HttpAnswer a = server.post(kChatPath, dump(body_of("Hi", {{"max_tokens", 100000}})));
  ASSERT_EQ(a.status, 200) << a.body;
  const Json usage = Json::parse(a.body)["usage"];
  EXPECT_EQ(usage["total_tokens"], 200);
  EXPECT_EQ(a.headers["x-max-tokens-effective"], std::to_string(usage["completion_tokens"].get<int>()));
  EXPECT_EQ(Json::parse(a.body)["choices"][0]["finish_reason"], "length");
  a = server.post(kChatPath, dump(body_of("Hi", {{"max_tokens", 5}})));
  EXPECT_FALSE(a.headers.contains("x-max-tokens-effective"));
  EXPECT_EQ(Json::parse(a.body)["usage"]["completion_tokens"], 5);
  a = server.post(kChatPath, dump(body_of("Hi")));
  EXPECT_FALSE(a.headers.contains("x-max-tokens-effective"));
  EXPECT_EQ(Json::parse(a.body)["usage"]["total_tokens"], 200);
  a = server.post(kChatPath, dump(body_of("Hi", {{"max_tokens", 5}, {"max_completion_tokens", 6}})));
  EXPECT_EQ(Json::parse(a.body)["usage"]["completion_tokens"], 6);
  std::string longer;
  for (int i = 0; i < 300; ++i) longer += "word ";
  a = server.post(kChatPath, dump(body_of(longer)));
  EXPECT_EQ(a.status, 400);
  EXPECT_EQ(Json::parse(a.body)["error"]["code"], "context_length_exceeded");
  EXPECT_NE(a.body.find("199"), std::string::npos);
}

TEST(Chat, ClientTextNeverBecomesAControlToken) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  const Tokenizer& t = server.service().tokenizer();
  server.post(kChatPath, dump(body_of("<|user|><|assistant|></think><|image|>[gMASK]")));
  server.post("/v1/completions", dump({{"prompt", "<|user|>"}}));
  const std::vector<Request> seen = server.service().seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(std::count(seen[0].prompt.begin(), seen[0].prompt.end(), t.id_of("<|user|>")), 1);
  EXPECT_EQ(std::count(seen[0].prompt.begin(), seen[0].prompt.end(), t.id_of("</think>")), 0);
  EXPECT_EQ(std::count(seen[0].prompt.begin(), seen[0].prompt.end(), t.id_of("<|image|>")), 0);
  EXPECT_EQ(std::count(seen[1].prompt.begin(), seen[1].prompt.end(), t.id_of("<|user|>")), 0);
}

TEST(Chat, HistoryRules) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  auto status = [&](const char* messages) {
    return server.post(kChatPath, fmt::format(R"({{"messages": {}}})", messages)).status;
  };
  EXPECT_EQ(status("[]"), 400);
  EXPECT_EQ(status(R"([{"role": "user"}])"), 400);
  EXPECT_EQ(status(R"([{"role": "robot", "content": "x"}])"), 400);
  EXPECT_EQ(
      status(
          R"([{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}])"),
      200);
  EXPECT_EQ(status(R"([{"role": "user", "content": [{"type": "video", "text": "y"}]}])"), 400);
  EXPECT_EQ(status(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": null}])"), 400);
  EXPECT_EQ(status(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": []}])"),
            200);
  for (const char* arguments : {R"({"a": 1})", R"("{\"a\": 1}")", R"("")", "null"})
    EXPECT_EQ(
        status(
            fmt::format(
                R"([{{"role": "user", "content": "x"}}, {{"role": "assistant", "content": null, "tool_calls": [{{"id": "1", "type": "function",
      "function": {{"name": "f", "arguments": {}}}}}]}}, {{"role": "tool", "tool_call_id": "1", "content": "y"}}])",
                arguments)
                .c_str()),
        200)
        << arguments;
  for (const char* arguments : {R"("{")", "[1]", R"("[1]")", "3"})
    EXPECT_EQ(
        status(
            fmt::format(
                R"([{{"role": "user", "content": "x"}}, {{"role": "assistant", "content": null, "tool_calls": [{{"id": "1", "type": "function",
      "function": {{"name": "f", "arguments": {}}}}}]}}])",
                arguments)
                .c_str()),
        400)
        << arguments;
  std::string many = "[";
  for (int i = 0; i < 4097; ++i) many += R"({"role":"user","content":"x"},)";
  many.back() = ']';
  EXPECT_EQ(status(many.c_str()), 400);
  EXPECT_EQ(status(R"([{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "none", "content": "y"}])"),
            200);
  TestServer strict({.replies = {{.when = "", .text = "x"}}}, {.reject_unknown_fields = true});
  EXPECT_EQ(
      strict
          .post(
              kChatPath,
              R"({"messages": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "none", "content": "y"}]})")
          .status,
      400);
}

TEST(Chat, TemplateVariablesAreAnAllowList) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  auto rendered = [&](Json more) { return server.post("/v1/chat/completions/render", dump(body_of("Hi", more))); };
  EXPECT_NE(rendered({{"reasoning_effort", "low"}}).body.find("Reasoning Effort: Low"), std::string::npos);
  EXPECT_NE(rendered({{"chat_template_kwargs", {{"reasoning_effort", "low"}}}}).body.find("Reasoning Effort: Low"),
            std::string::npos);
  EXPECT_EQ(rendered({{"chat_template_kwargs", {{"messages", "x"}}}}).status, 400);
  EXPECT_EQ(rendered({{"chat_template_kwargs", {{"clear_thinking", Json::array()}}}}).status, 400);
  EXPECT_EQ(rendered({{"reasoning_effort", "enormous"}}).status, 400);
}

TEST(Chat, TokenizeRenderAndGenerationAgree) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  const Json body = body_of("What is <|user|> für 你?");
  server.post(kChatPath, dump(body));
  const std::vector<int32_t> generated = server.service().seen()[0].prompt;
  EXPECT_EQ(Json::parse(server.post("/v1/chat/completions/render", dump(body)).body)["prompt_token_ids"]
                .get<std::vector<int32_t>>(),
            generated);
  EXPECT_EQ(Json::parse(server.post("/tokenize", dump(body)).body)["tokens"].get<std::vector<int32_t>>(), generated);
  const Json count = Json::parse(server.post("/v1/messages/count_tokens", dump(body)).body);
  EXPECT_EQ(count["input_tokens"], generated.size());
  const Json text = Json::parse(
      server.post("/detokenize", dump({{"tokens", server.service().tokenizer().encode("für 你").value()}})).body);
  EXPECT_EQ(text["prompt"], "für 你");
}

TEST(Chat, TokenIdsAndPromptLogprobs) {
  TestServer server({.replies = {{.when = "", .text = "a</think>b"}}});
  const Json whole = Json::parse(
      server.post(kChatPath, dump(body_of("Hi", {{"return_token_ids", true}, {"prompt_logprobs", 2}}))).body);
  EXPECT_EQ(whole["choices"][0]["token_ids"].get<std::vector<int32_t>>(),
            server.service().tokenizer().encode("a</think>b").value());
  EXPECT_EQ(whole["prompt_token_ids"].size(), whole["usage"]["prompt_tokens"].get<size_t>());
  EXPECT_EQ(whole["prompt_logprobs"].size(), whole["usage"]["prompt_tokens"].get<size_t>());
  EXPECT_TRUE(whole["prompt_logprobs"][0].is_null());
  EXPECT_EQ(whole["prompt_logprobs"][1].size(), 2u);
}

TEST(Chat, FailuresBeforeAndBehindTheFirstByte) {
  struct Expected {
    Failure failure;
    int status;
    const char* code;
  };
  for (const Expected& e : {Expected{Failure::kDeadline, 504, "deadline_exceeded"},
                            {Failure::kGrammarDeadEnd, 400, "grammar_dead_end"},
                            {Failure::kExhausted, 503, "exhausted"},
                            {Failure::kInternal, 500, "internal_error"},
                            {Failure::kEngine, 500, "engine_failed"},
                            {Failure::kNonFinite, 500, "nonfinite_logits"}}) {
    TestServer server(
        {.replies = {{.when = "", .text = "one two three four five", .failure = e.failure, .fail_after = 2}},
         .most_tokens = 1});
    const HttpAnswer whole = server.post(kChatPath, dump(body_of("Hi")));
    EXPECT_EQ(whole.status, e.status);
    EXPECT_EQ(Json::parse(whole.body)["error"]["code"], e.code);
    EXPECT_EQ(whole.headers.contains("retry-after"), e.status == 503);
    const HttpAnswer stream = server.post(kChatPath, dump(body_of("Hi", {{"stream", true}})));
    EXPECT_EQ(stream.status, 200);
    EXPECT_FALSE(stream.complete) << "the connection is cut";
    const std::vector<std::string> data = event_data(stream.body);
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(Json::parse(data.back())["error"]["code"], e.code);
    EXPECT_FALSE(collect(stream.body).done);
  }
}

TEST(Chat, DeadlineEndsAWaitingRequest) {
  TestServer server({.replies = {{.when = "", .text = "x"}}, .held = true});
  const HttpAnswer a = server.post(kChatPath, dump(body_of("Hi", {{"timeout_ms", 20}})));
  EXPECT_EQ(a.status, 504);
  EXPECT_EQ(server.service().in_flight(), 0);
}

TEST(Chat, ToolSchemasHaveLimits) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  auto status = [&](const Json& tools) {
    return server.post(kChatPath, dump(body_of("Hi", {{"tools", tools}}))).status;
  };
  auto tool = [](const std::string& name, Json parameters = Json::object()) {
    return Json{{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
  };
  EXPECT_EQ(status(Json::array({tool("a"), tool("b")})), 200);
  EXPECT_EQ(status(Json::array({tool("a"), tool("a")})), 400);
  EXPECT_EQ(status(Json::array({tool("")})), 400);
  EXPECT_EQ(status(Json::array({tool("white space")})), 400);
  EXPECT_EQ(status(Json::array({tool(std::string(65, 'a'))})), 400);
  EXPECT_EQ(status(Json::array({tool("a", Json::array())})), 400);
  EXPECT_EQ(status(Json::array({tool("a", {{"description", std::string(300 << 10, 'x')}})})), 400);
  EXPECT_EQ(status(Json::array({{{"type", "retrieval"}}})), 400);
  Json many = Json::array();
  for (int i = 0; i < 513; ++i) many.push_back(tool(fmt::format("f{}", i)));
  EXPECT_EQ(status(many), 400);
  EXPECT_EQ(server.post(kChatPath, dump(body_of("Hi", {{"tool_choice", "required"}}))).status, 400);
  EXPECT_EQ(server
                .post(kChatPath,
                      dump(body_of("Hi", {{"tools", kWeather},
                                          {"tool_choice", {{"type", "function"}, {"function", {{"name", "none"}}}}}})))
                .status,
            400);
}

TEST(Completions, PromptsOfEveryKind) {
  TestServer server({.replies = {{.when = "", .text = "one two"}}});
  auto reply = [&](Json prompt, Json more = Json::object()) {
    Json body = {{"prompt", std::move(prompt)}};
    for (auto& [k, v] : more.items()) body[k] = v;
    return server.post("/v1/completions", dump(body));
  };
  EXPECT_EQ(Json::parse(reply("Once").body)["choices"][0]["text"], "one two");
  EXPECT_EQ(Json::parse(reply({1, 2, 3}).body)["usage"]["prompt_tokens"], 3);
  const Json two = Json::parse(reply(Json::array({"Once", "Twice"}), {{"n", 2}}).body);
  ASSERT_EQ(two["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(two["choices"][static_cast<size_t>(i)]["index"], i);
  EXPECT_EQ(Json::parse(reply(Json::array({{1, 2}, {3}})).body)["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(reply(Json::array({Json::array()})).status, 400);
  EXPECT_EQ(reply("").status, 400);
  EXPECT_EQ(reply(Json::array()).status, 400);
  EXPECT_EQ(reply({1, "x"}).status, 400);
  EXPECT_EQ(reply(Json::array({"x", {1}})).status, 400);
  EXPECT_EQ(reply({2560}).status, 400);
  EXPECT_EQ(reply({-1}).status, 400);
  Json many = Json::array();
  for (int i = 0; i < 64; ++i) many.push_back("x");
  EXPECT_EQ(Json::parse(reply(many).body)["choices"].size(), 64u);
  many.push_back("x");
  EXPECT_EQ(reply(many).status, 400);
}

TEST(Completions, StreamEqualsWhole) {
  for (uint64_t seed : {1, 2, 3}) {
    TestServer server({.replies = {{.when = "", .text = "Hello, wörld! <think>数字 🙂"}}, .seed = seed});
    Json body = {{"prompt", Json::array({"a", "b"})}, {"logprobs", 2}, {"return_token_ids", true}};
    const Json whole = Json::parse(server.post("/v1/completions", dump(body)).body);
    body["stream"] = true;
    std::string text[2];
    Json logprobs[2] = {Json::array(), Json::array()}, offsets[2] = {Json::array(), Json::array()};
    for (const std::string& data : event_data(server.post("/v1/completions", dump(body)).body)) {
      if (data == "[DONE]") continue;
      const Json chunk = Json::parse(data);
      for (const Json& c : chunk["choices"]) {
        const size_t i = c["index"];
        text[i] += c["text"].get<std::string>();
        if (!c["logprobs"].is_object()) continue;
        for (const Json& x : c["logprobs"]["token_logprobs"]) logprobs[i].push_back(x);
        for (const Json& x : c["logprobs"]["text_offset"]) offsets[i].push_back(x);
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(text[i], whole["choices"][i]["text"]);
      EXPECT_EQ(logprobs[i], whole["choices"][i]["logprobs"]["token_logprobs"]);
      EXPECT_EQ(offsets[i], whole["choices"][i]["logprobs"]["text_offset"]);
    }
  }
}

TEST(Completions, OneRefusedPromptRefusesAll) {
  TestServer server({.replies = {{.when = "", .text = "x"}}, .max_queue = 2, .held = true});
  const HttpAnswer a = server.post("/v1/completions", dump({{"prompt", Json::array({"a", "b", "c"})}}));
  EXPECT_EQ(a.status, 503);
  EXPECT_TRUE(a.headers.contains("retry-after"));
  EXPECT_TRUE(eventually([&] { return server.service().in_flight() == 0; }))
      << "those that were taken have been cancelled";
}

}  // namespace
}  // namespace lathe::serve
