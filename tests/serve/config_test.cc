#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "engine/engine_stats.h"
#include "lathe/server.h"
#include "serve/images.h"
#include "serve/json.h"
#include "serve/metrics.h"
#include "testing/golden.h"
#include "testing/image_files.h"
#include "testing/scratch_folder.h"
#include "testing/test_server.h"

// Configuration, documents, and pictures on their way in.
namespace lathe::serve {
namespace {

using testing::HttpAnswer;
using testing::ScratchFolder;
using testing::source_file;
using testing::TestServer;

Result<ServerConfig> load(const std::string& toml, const std::vector<std::string>& environment = {},
                          const std::vector<std::pair<std::string, std::string>>& flags = {}) {
  ScratchFolder folder;
  std::ofstream(folder.path("server.toml")) << toml;
  return load_server_config(folder.path("server.toml"), environment, flags);
}

TEST(Config, FlagsBeatTheEnvironmentAndThatTheFile) {
  const char* toml = "model = 'm'\nport = 1\nmax_queue = 1\nmax_running = 1\n";
  const ServerConfig c =
      load(toml, {"LATHE_MAX_QUEUE=2", "LATHE_MAX_RUNNING=2", "HOME=/root", "LATHE_ISA=avx2"}, {{"max_running", "3"}})
          .value();
  EXPECT_EQ(c.port, 1);
  EXPECT_EQ(c.max_queue, 2);
  EXPECT_EQ(c.max_running, 3);
}

TEST(Config, UnknownKeysAreErrorsThatNameTheNearest) {
  EXPECT_NE(load("model = 'm'\nmax_queu = 1").status().message().find("'max_queu'; the nearest is 'max_queue'"),
            std::string::npos);
  EXPECT_NE(load("model = 'm'\n[listen]\nport = 1").status().message().find("'listen'"), std::string::npos);
  EXPECT_NE(load("model = 'm'", {"LATHE_PROT=1"}).status().message().find("LATHE_PROT"), std::string::npos);
  EXPECT_NE(load("model = 'm'", {}, {{"prot", "1"}}).status().message().find("'prot'"), std::string::npos);
}

TEST(Config, VariantsMustExist) {
  EXPECT_TRUE(load("model = 'm'\nvariants = ['add=reference', '*=reference']").is_ok());
  for (const char* wrong : {"add=nope", "nope=reference", "zz", "*=nope"})
    EXPECT_FALSE(load(fmt::format("model = 'm'\nvariants = ['{}']", wrong)).is_ok()) << wrong;
}

// Every key takes its default and refuses another type and what lies outside its range.
TEST(Config, EveryKeyHasATypeAndARange) {
  for (const ConfigKey& k : server_config_keys()) {
    if (k.name == "model") continue;
    SCOPED_TRACE(k.name);
    EXPECT_TRUE(load_server_config("", {}, {{"model", "m"}, {k.name, k.fallback}}).is_ok()) << k.fallback;
    EXPECT_FALSE(load(fmt::format("model = 'm'\n{} = 1979-05-27", k.name)).is_ok());
    if (k.type != "string" && k.type != "list of strings") {
      EXPECT_FALSE(load_server_config("", {}, {{"model", "m"}, {k.name, "many"}}).is_ok());
      EXPECT_FALSE(load_server_config("", {}, {{"model", "m"}, {k.name, ""}}).is_ok());
      EXPECT_FALSE(load(fmt::format("model = 'm'\n{} = 'text'", k.name)).is_ok());
    }
    if (k.type == "integer" || k.type == "number") {
      EXPECT_FALSE(load_server_config("", {}, {{"model", "m"}, {k.name, "-1000000"}}).is_ok());
      const std::string message = load(fmt::format("model = 'm'\n{} = -1000000", k.name)).status().message();
      EXPECT_NE(message.find("server.toml:2: " + k.name), std::string::npos) << message;
    }
    EXPECT_NE(k.meaning, "");
  }
}

TEST(Config, BadMixes) {
  auto error = [](const char* toml) { return load(toml).status().message(); };
  EXPECT_NE(error("port = 1").find("model"), std::string::npos);
  EXPECT_NE(error("model = 'm'\nhost = '0.0.0.0'").find("keys_file"), std::string::npos);
  EXPECT_TRUE(load("model = 'm'\nhost = '0.0.0.0'\nkeys_file = 'keys.toml'").is_ok());
  EXPECT_TRUE(load("model = 'm'\nhost = '0.0.0.0'\nopen_without_keys = true").is_ok());
  EXPECT_NE(error("model = 'm'\nadmin = '0.0.0.0:9'").find("private"), std::string::npos);
  EXPECT_NE(error("model = 'm'\nadmin = 'nine'").find("admin"), std::string::npos);
  EXPECT_NE(error("model = 'm'\nmodel = 'n'").find("server.toml:2"), std::string::npos);
}

TEST(Config, CheckConfigTellsMemoryAndLimits) {
  ServerConfig c;
  c.model = source_file("models/demo");
  const std::string text = describe_server(c).value();
  for (const char* word : {"max_queue", "1024", "weights", "pages", "activations", "67108864 bytes"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
  c.max_context = 1 << 20;
  EXPECT_NE(describe_server(c).status().message().find("max_context"), std::string::npos);
}

std::string read(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(source_file(file)).rdbuf();
  return text.str();
}

// Regenerate with: lathe serve --openapi > docs/openapi.json
TEST(Documents, OpenApiFileIsWhatTheServerTells) {
  EXPECT_EQ(read("docs/openapi.json"), server_openapi());
  const Json all = Json::parse(server_openapi());
  for (const Route& r : route_table()) EXPECT_EQ(all["paths"].contains(r.path), !r.admin) << r.path;
}

// Regenerate the tables with: lathe serve --manual
TEST(Documents, TheManualHoldsTheTables) {
  EXPECT_NE(read("docs/serving.md").find(server_manual()), std::string::npos);
}

TEST(Documents, EveryNumberOfTheEngineIsInTheTableOfMetrics) {
  std::set<std::string> told;
  for (const MetricName& m : metric_names()) told.insert(m.name);
  const ServiceStats stats = EngineNumbers().named();
  for (const Metric& m : stats.metrics) EXPECT_TRUE(told.contains(m.name)) << m.name;
  for (const Histogram& h : stats.histograms) EXPECT_TRUE(told.contains(h.name)) << h.name;
}

TEST(Base64, RoundTripsAndRefuses) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("ab"), std::string("abc"), std::string("\0\xff\x80", 3)}) {
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(decode_base64(encode_base64(text), bytes));
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), text);
  }
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(decode_base64("YQ", bytes));
  for (const char* wrong : {"Y", "YQ=", "YQ===", "YQ==YQ==", "Y Q=", "YR==", "Y\nQ=", "=", "====", "YWI=="})
    EXPECT_FALSE(decode_base64(wrong, bytes)) << wrong;
}

std::string data_uri(const testing::Bytes& bytes) {
  return "data:image/png;base64," + encode_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

HttpAnswer look(TestServer& server, const std::vector<std::string>& urls) {
  Json parts = Json::array();
  for (const std::string& url : urls) parts.push_back({{"type", "image_url"}, {"image_url", {{"url", url}}}});
  parts.push_back({{"type", "text"}, {"text", "What is it?"}});
  return server.post("/v1/chat/completions",
                     dump({{"messages", Json::array({{{"role", "user"}, {"content", parts}}})}}));
}

TEST(Images, ReachTheRequestInEveryApi) {
  TestServer server({.replies = {{.when = "", .text = "</think>A picture"}}});
  const testing::Bytes png = testing::png(testing::test_picture(64, 48)),
                       other = testing::png(testing::test_picture(64, 48, 2));
  const HttpAnswer a = look(server, {data_uri(png), data_uri(png), data_uri(other)});
  ASSERT_EQ(a.status, 200) << a.body;
  const Request seen = server.service().seen()[0];
  ASSERT_EQ(seen.media_keys.size(), 3u);
  EXPECT_EQ(seen.media_keys[0], seen.media_keys[1]);
  EXPECT_NE(seen.media_keys[0], seen.media_keys[2]);
  EXPECT_GE(seen.media_keys[0].size(), 16u);
  EXPECT_GT(Json::parse(a.body)["usage"]["prompt_tokens_details"]["image_tokens"], 0);
  const std::string base64 = encode_base64({reinterpret_cast<const char*>(png.data()), png.size()});
  const Json message = {
      {"role", "user"},
      {"content", Json::array({{{"type", "image"},
                                {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", base64}}}},
                               {{"type", "text"}, {"text", "?"}}})}};
  EXPECT_EQ(server.post("/v1/messages", dump({{"max_tokens", 5}, {"messages", Json::array({message})}})).status, 200);
  EXPECT_EQ(server.post("/v1/messages/count_tokens", dump({{"messages", Json::array({message})}})).status, 200);
  EXPECT_EQ(server
                .post("/v1/responses",
                      dump({{"input", Json::array({{{"role", "user"},
                                                    {"content", Json::array({{{"type", "input_image"},
                                                                              {"image_url", data_uri(png)}}})}}})}}))
                .status,
            200);
  EXPECT_EQ(server.service().seen()[1].media_keys[0], seen.media_keys[0])
      << "the same picture has the same key in every API";
  EXPECT_EQ(server.service().seen()[2].media_keys[0], seen.media_keys[0]);
}

TEST(Images, BadOnesAreRefusedInFixedWords) {
  TestServer server({.replies = {{.when = "", .text = "x"}}},
                    {.max_images = 3, .image_bytes = 100000, .image_pixels = 10000});
  const testing::Bytes good = testing::png(testing::test_picture(64, 48));
  testing::Bytes truncated(good.begin(), good.begin() + static_cast<long>(good.size() / 2)), flipped = good;
  flipped[good.size() / 2] ^= 0x10;
  for (const std::string& url :
       {std::string("http://127.0.0.1/x.png"), std::string("https://example.com/x.png"),
        std::string("file:///etc/passwd"), std::string("ftp://x"), std::string("data:image/png,xx"),
        std::string("data:image/png;base64,"), std::string("data:image/png;base64,####"),
        std::string("data:;base64,aGVsbG8="), std::string(""), data_uri(truncated), data_uri(flipped),
        data_uri(testing::png(testing::test_picture(128, 100))), "data:image/png;base64," + std::string(200000, 'A')}) {
    const HttpAnswer a = look(server, {url});
    EXPECT_EQ(a.status, 400) << url.substr(0, 60);
    EXPECT_EQ(Json::parse(a.body)["error"]["code"], url.empty() ? "invalid_type" : "invalid_image") << a.body;
    EXPECT_EQ(a.body.find("passwd"), std::string::npos);
  }
  EXPECT_EQ(look(server, {data_uri(good), data_uri(good), data_uri(good)}).status, 200);
  EXPECT_EQ(look(server, {data_uri(good), data_uri(good), data_uri(good), data_uri(good)}).status, 400);
  EXPECT_NE(server.get("/metrics").body.find("lathe_image_rejects_total{model=\"demo\",role=\"all\",why=\"remote\"} 2"),
            std::string::npos);
}

TEST(Structure, SourcesAndTheirErrors) {
  TestServer server({.replies = {{.when = "", .text = "</think>{}"}}});
  auto status = [&](const std::string& more) {
    return server.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], )" + more + "}")
        .status;
  };
  for (const char* good :
       {R"("response_format": {"type": "text"})", R"("response_format": {"type": "json_object"})",
        R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}})",
        R"("structured_outputs": {"regex": "[a-z]+"})", R"("structured_outputs": {"choice": ["yes", "no"]})",
        R"("guided_choice": ["yes", "no"])", R"("guided_json": {"type": "string"})",
        R"("guided_json": "{\"type\": \"string\"}")"})
    EXPECT_EQ(status(good), 200) << good;
  for (const char* wrong :
       {R"("response_format": {"type": "xml"})", R"("response_format": {"type": "json_schema"})",
        R"("structured_outputs": {"poem": "x"})", R"("structured_outputs": {"choice": []})",
        R"("structured_outputs": {"regex": 1})", R"("structured_outputs": {"regex": "a", "choice": ["b"]})",
        R"("response_format": {"type": "json_object"}, "guided_regex": "a")", R"("guided_json": "{")"})
    EXPECT_EQ(status(wrong), 400) << wrong;
  EXPECT_FALSE(server.service().seen()[0].grammar);
  EXPECT_TRUE(server.service().seen()[1].grammar);
  EXPECT_TRUE(server.service().seen()[1].grammar_after_reasoning);
}

TEST(Structure, ForcedCallsAreAGrammar) {
  TestServer server({.replies = {{.when = "", .text = "</think><tool_call>now</tool_call>"}}});
  const std::string tools =
      R"("messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "now"}}])";
  EXPECT_EQ(server.post("/v1/chat/completions", "{" + tools + R"(, "tool_choice": "required"})").status, 200);
  EXPECT_EQ(server
                .post("/v1/chat/completions",
                      "{" + tools + R"(, "tool_choice": {"type": "function", "function": {"name": "now"}}})")
                .status,
            200);
  EXPECT_EQ(server
                .post("/v1/chat/completions",
                      "{" + tools + R"(, "response_format": {"type": "json_object"}, "tool_choice": "required"})")
                .status,
            400);
  EXPECT_EQ(server
                .post("/v1/chat/completions",
                      "{" + tools + R"(, "response_format": {"type": "json_object"}, "tool_choice": "none"})")
                .status,
            200);
  EXPECT_TRUE(server.service().seen()[0].grammar);
  EXPECT_TRUE(server.service().seen()[1].grammar);
}

TEST(Structure, WithToolsTheTextOrCalls) {
  TestServer server({.replies = {{.when = "", .text = "</think>{}"}}});
  const std::string tools =
      R"("messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "now"}}])";
  EXPECT_EQ(
      server.post("/v1/chat/completions", "{" + tools + R"(, "response_format": {"type": "json_object"}})").status,
      200);
  EXPECT_EQ(server
                .post("/v1/chat/completions",
                      "{" + tools + R"(, "response_format": {"type": "json_object"}, "tool_choice": "none"})")
                .status,
            200);
  auto takes = [&](const Request& r, const std::string& text) {
    GrammarState state(r.grammar);
    const std::vector<int32_t> tokens = server.service().tokenizer().encode(text).value();
    for (const int32_t id : tokens)
      if (!state.advance(id)) return false;
    return state.may_end();
  };
  const Request with = server.service().seen()[0], without = server.service().seen()[1];
  for (const char* text : {"{\"a\": 1}", "{}"}) {
    EXPECT_TRUE(takes(with, text)) << text;
    EXPECT_TRUE(takes(without, text)) << text;
  }
  EXPECT_TRUE(takes(with, "<tool_call>now</tool_call>"));
  EXPECT_FALSE(takes(without, "<tool_call>now</tool_call>"));
  for (const char* text : {"Hi", "{}<tool_call>now</tool_call>", "<tool_call>other</tool_call>"})
    EXPECT_FALSE(takes(with, text)) << text;
}

TEST(Images, AreNotReadWhenTheirRequestIsRefused) {
  testing::Script script{.replies = {{.when = "", .text = "x"}}};
  script.held = true, script.max_queue = 1;
  TestServer server(script);
  testing::HttpClient client(server.port());
  client.send(testing::post_text("/v1/chat/completions", testing::kChatBody));
  ASSERT_TRUE(testing::eventually([&] { return server.service().in_flight() == 1; }));
  const HttpAnswer a = look(server, {"data:image/png;base64,####"});
  EXPECT_EQ(a.status, 503) << "a broken picture would have been 400: it was read";
  EXPECT_TRUE(a.headers.contains("retry-after"));
  server.service().release();
}

// What serving.md says where nothing is configured.
TEST(Config, DefaultsAreThoseOfTheSpecification) {
  const ServerConfig c;
  EXPECT_EQ(c.host, "127.0.0.1");
  EXPECT_EQ(c.port, 8000);
  EXPECT_TRUE(c.keys_file.empty() && c.admin.empty() && !c.open_without_keys && !c.strict && !c.log_prompts);
  EXPECT_FALSE(c.reject_unknown_fields);
  EXPECT_EQ(c.max_queue, 1024);
  EXPECT_EQ(c.max_queue_capacities, 4);
  EXPECT_EQ(c.max_wait_seconds, 60);
  EXPECT_EQ(c.max_images, 64);
  EXPECT_EQ(c.image_bytes, 20 << 20);
  EXPECT_EQ(c.image_pixels, 64'000'000);
  EXPECT_EQ(c.image_seconds, 10);
  EXPECT_EQ(c.max_connections, 8192);
  EXPECT_EQ(c.send_buffer_bytes, 64 << 10);
  EXPECT_EQ(c.idle_seconds, 120);
  EXPECT_EQ(c.header_seconds, 10);
  EXPECT_EQ(c.body_idle_seconds, 60);
  EXPECT_EQ(c.write_stall_seconds, 60);
  EXPECT_EQ(c.ping_seconds, 15);
  EXPECT_EQ(c.drain_seconds, 120);
  EXPECT_EQ(c.stall_seconds, 30);
  EXPECT_EQ(c.audit_tokens_per_minute, 0);
  const GrammarLimits grammar;
  EXPECT_EQ(grammar.schema_bytes, 256 << 10);
  EXPECT_EQ(grammar.schema_depth, 64);
  EXPECT_EQ(grammar.schema_nodes, 4096);
  EXPECT_EQ(grammar.enum_values, 10'000);
  EXPECT_EQ(grammar.pattern_bytes, 1 << 10);
  EXPECT_EQ(grammar.grammar_bytes, 64 << 10);
  EXPECT_EQ(grammar.grammar_nesting, 200);
  EXPECT_EQ(grammar.seconds, 5);
  EXPECT_EQ(grammar.bytes, int64_t{256} << 20);
  EXPECT_EQ(PictureLimits().side, 16384);
}

}  // namespace
}  // namespace lathe::serve
