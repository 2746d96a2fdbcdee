#include <gtest/gtest.h>

#include "serve/json.h"
#include "testing/test_server.h"

// /v1/messages and /v1/responses over a scripted model.
namespace lathe::serve {
namespace {

using testing::event_data;
using testing::HttpAnswer;
using testing::Script;
using testing::TestServer;

const char* kThought =
    "Hmm, wörld.</think>Let me look.<tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value></tool_call>";
const Json kSchema = Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}}})");

Json messages_body(Json more = Json::object()) {
  Json body = {{"max_tokens", 500},
               {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
               {"tools", Json::array({{{"name", "weather"}, {"input_schema", kSchema}}})},
               {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}};
  for (auto& [k, v] : more.items()) body[k] = v;
  return body;
}

// A message put together from its events, which must come in order.
Json collect_message(const std::string& body) {
  Json message, open;
  std::string json;
  bool stopped = false;
  for (const std::string& data : event_data(body)) {
    const Json e = Json::parse(data);
    const std::string type = e["type"];
    EXPECT_FALSE(stopped);
    EXPECT_NE(body.find("event: " + type + "\ndata: "), std::string::npos);
    if (type == "message_start") {
      EXPECT_TRUE(message.is_null());
      message = e["message"];
    } else if (type == "content_block_start") {
      EXPECT_TRUE(open.is_null()) << "one block at a time";
      EXPECT_EQ(e["index"], message["content"].size());
      open = e["content_block"];
      json.clear();
    } else if (type == "content_block_delta") {
      const Json& d = e["delta"];
      if (d["type"] == "text_delta") open["text"] = open["text"].get<std::string>() + d["text"].get<std::string>();
      if (d["type"] == "thinking_delta")
        open["thinking"] = open["thinking"].get<std::string>() + d["thinking"].get<std::string>();
      if (d["type"] == "signature_delta") open["signature"] = d["signature"];
      if (d["type"] == "input_json_delta") json += d["partial_json"].get<std::string>();
    } else if (type == "content_block_stop") {
      if (open["type"] == "tool_use") open["input"] = Json::parse(json);
      message["content"].push_back(open);
      open = nullptr;
    } else if (type == "message_delta") {
      EXPECT_TRUE(open.is_null());
      message["stop_reason"] = e["delta"]["stop_reason"];
      message["stop_sequence"] = e["delta"]["stop_sequence"];
      message["usage"] = e["usage"];
    } else if (type == "message_stop") {
      stopped = true;
    } else {
      EXPECT_EQ(type, "ping");
    }
  }
  EXPECT_TRUE(stopped);
  return message;
}

Json without_ids(Json message) {
  message["id"] = "";
  for (Json& block : message["content"])
    if (block.contains("id")) block["id"] = "";
  return message;
}

TEST(Messages, StreamEqualsWhole) {
  for (const char* text : {kThought, "Hmm.</think>Done", "Only thinking", "", "</think>Text",
                           "</think><tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>"})
    for (uint64_t seed : {1, 2, 3})
      for (const char* thinking : {"enabled", "disabled"}) {
        TestServer server({.replies = {{.when = "", .text = text}}, .seed = seed, .cached_tokens = 2});
        Json body = messages_body({{"thinking", {{"type", thinking}}}});
        const HttpAnswer whole = server.post("/v1/messages", dump(body));
        ASSERT_EQ(whole.status, 200) << whole.body;
        body["stream"] = true;
        EXPECT_EQ(without_ids(collect_message(server.post("/v1/messages", dump(body)).body)),
                  without_ids(Json::parse(whole.body)));
      }
}

TEST(Messages, BlocksInOrder) {
  TestServer server({.replies = {{.when = "", .text = kThought}}, .cached_tokens = 2});
  const Json m = Json::parse(server.post("/v1/messages", dump(messages_body())).body);
  ASSERT_EQ(m["content"].size(), 3u);
  EXPECT_EQ(m["content"][0]["thinking"], "Hmm, wörld.");
  EXPECT_NE(m["content"][0]["signature"], "");
  EXPECT_EQ(m["content"][1]["text"], "Let me look.");
  EXPECT_EQ(m["content"][2]["name"], "weather");
  EXPECT_EQ(m["content"][2]["input"], Json({{"city", "Köln"}}));
  EXPECT_EQ(m["stop_reason"], "tool_use");
  EXPECT_EQ(m["usage"]["cache_read_input_tokens"], 2);
}

TEST(Messages, StopReasons) {
  TestServer server({.replies = {{.when = "", .text = "</think>one two three"}}});
  EXPECT_EQ(Json::parse(server.post("/v1/messages", dump(messages_body())).body)["stop_reason"], "end_turn");
  const Json stopped =
      Json::parse(server.post("/v1/messages", dump(messages_body({{"stop_sequences", {"two"}}}))).body);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "two");
  EXPECT_EQ(Json::parse(server.post("/v1/messages", dump(messages_body({{"max_tokens", 2}}))).body)["stop_reason"],
            "max_tokens");
}

TEST(Messages, ConversationsBecomeTheTemplates) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  const char* body = R"({"max_tokens": 5, "system": [{"type": "text", "text": "Be brief."}], "messages": [
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Ask.", "signature": "s"}, {"type": "text", "text": "One moment"},
       {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rom"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Sunny"}]}, {"type": "text", "text": "And?"}]}]})";
  ASSERT_EQ(server.post("/v1/messages", body).status, 200);
  const std::string prompt = server.service().tokenizer().decode(server.service().seen()[0].prompt);
  EXPECT_NE(
      prompt.find("<|system|>Be brief.<|user|>Weather?<|assistant|><think>Ask.</think>One "
                  "moment<tool_call>weather<arg_key>city</arg_key><arg_value>Rom</arg_value>"
                  "</tool_call><|observation|><tool_response>Sunny</tool_response><|user|>And?<|assistant|><think>"),
      std::string::npos)
      << prompt;
}

TEST(Messages, ErrorsHaveTheirOwnShape) {
  TestServer server({.replies = {{.when = "", .text = "x", .failure = Failure::kDeadline, .fail_after = 0}}});
  for (
      const char* body :
      {"{", R"({"messages": []})", R"({"max_tokens": 5})",
       R"({"max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]})",
       R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "document"}]}]})",
       R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search_20250305", "name": "web_search"}]})"}) {
    const HttpAnswer a = server.post("/v1/messages", body);
    EXPECT_EQ(a.status, 400) << body;
    EXPECT_EQ(Json::parse(a.body)["type"], "error");
    EXPECT_EQ(Json::parse(a.body)["error"]["type"], "invalid_request_error");
  }
  EXPECT_EQ(Json::parse(server.post("/v1/messages", dump(messages_body())).body)["error"]["type"], "timeout_error");
  const std::string stream = server.post("/v1/messages", dump(messages_body({{"stream", true}}))).body;
  EXPECT_NE(stream.find("event: error\ndata: {\"type\":\"error\""), std::string::npos) << stream;
  EXPECT_EQ(stream.find("message_stop"), std::string::npos);
}

Json responses_body(Json more = Json::object()) {
  Json body = {{"input", "Hi"},
               {"tools", Json::array({{{"type", "function"}, {"name", "weather"}, {"parameters", kSchema}}})}};
  for (auto& [k, v] : more.items()) body[k] = v;
  return body;
}

Json normal_response(Json r) {
  r["id"] = "", r["created_at"] = 0;
  for (Json& item : r["output"]) {
    item["id"] = "";
    if (item.contains("call_id")) item["call_id"] = "";
  }
  return r;
}

TEST(Responses, StreamEqualsWhole) {
  for (const char* text : {kThought, "Hmm.</think>Done", "Only thinking", "</think>Text"})
    for (uint64_t seed : {1, 2, 3}) {
      TestServer server({.replies = {{.when = "", .text = text}}, .seed = seed});
      const HttpAnswer whole = server.post("/v1/responses", dump(responses_body()));
      ASSERT_EQ(whole.status, 200) << whole.body;
      Json last, built = Json::array();
      std::string text_now;
      int number = 0;
      for (const std::string& data :
           event_data(server.post("/v1/responses", dump(responses_body({{"stream", true}}))).body)) {
        const Json e = Json::parse(data);
        EXPECT_EQ(e["sequence_number"], number++);
        const std::string type = e["type"];
        if (type == "response.output_item.added") {
          text_now.clear();
          EXPECT_EQ(e["output_index"], built.size());
        }
        if (type.ends_with(".delta")) text_now += e["delta"].get<std::string>();
        if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
          EXPECT_EQ(e["text"], text_now);
        }
        if (type == "response.function_call_arguments.done") {
          EXPECT_EQ(e["arguments"], text_now);
        }
        if (type == "response.output_item.done") built.push_back(e["item"]);
        last = e;
      }
      EXPECT_EQ(last["type"], "response.completed");
      EXPECT_EQ(last["response"]["output"], built);
      EXPECT_EQ(normal_response(last["response"]), normal_response(Json::parse(whole.body)));
    }
}

TEST(Responses, ItemsAndTheirConversation) {
  TestServer server({.replies = {{.when = "", .text = kThought}}});
  const Json r = Json::parse(server.post("/v1/responses", dump(responses_body())).body);
  ASSERT_EQ(r["output"].size(), 3u);
  EXPECT_EQ(r["output"][0]["type"], "reasoning");
  EXPECT_EQ(r["output"][1]["content"][0]["text"], "Let me look.");
  EXPECT_EQ(r["output"][2]["name"], "weather");
  EXPECT_EQ(Json::parse(r["output"][2]["arguments"].get<std::string>()), Json({{"city", "Köln"}}));
  // What came out goes back in, with the call's result.
  Json input = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  for (const Json& item : r["output"]) input.push_back(item);
  input.push_back({{"type", "function_call_output"}, {"call_id", r["output"][2]["call_id"]}, {"output", "Sunny"}});
  ASSERT_EQ(
      server.post("/v1/responses", dump(responses_body({{"input", input}, {"instructions", "Be brief."}}))).status,
      200);
  const std::string prompt = server.service().tokenizer().decode(server.service().seen()[1].prompt);
  EXPECT_NE(prompt.find("<|system|>Be brief.<|user|>Hi<|assistant|><think>Hmm, wörld.</think>Let me "
                        "look.<tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value>"
                        "</tool_call><|observation|><tool_response>Sunny</tool_response><|assistant|><think>"),
            std::string::npos)
      << prompt;
}

TEST(Responses, WhatIsNotOfferedIsRefused) {
  TestServer server({.replies = {{.when = "", .text = "x"}}});
  for (const char* body :
       {R"({})", R"({"input": 1})", R"({"input": []})", R"({"input": [{"type": "item_reference", "id": "x"}]})",
        R"({"input": "x", "tools": [{"type": "web_search"}]})",
        R"({"input": [{"role": "user", "content": [{"type": "input_file"}]}]})",
        R"({"input": "x", "reasoning": {"effort": "gigantic"}})"})
    EXPECT_EQ(server.post("/v1/responses", body).status, 400) << body;
  const Json cut = Json::parse(server.post("/v1/responses", R"({"input": "x", "max_output_tokens": 1})").body);
  EXPECT_EQ(cut["status"], "completed");
}

TEST(Responses, Incomplete) {
  TestServer server({.replies = {{.when = "", .text = "</think>one two three four"}}});
  const Json cut = Json::parse(server.post("/v1/responses", R"({"input": "x", "max_output_tokens": 2})").body);
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

}  // namespace
}  // namespace lathe::serve
