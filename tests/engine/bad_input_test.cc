// What is wrong from outside is said with file and field, as an error a user can mend; nothing crashes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lathe/logits.h"
#include "model/glm5_next/synth.h"
#include "testing/scratch_folder.h"
#include "testing/small_config.h"

namespace lathe {
namespace {

using Json = nlohmann::json;

class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    write("source.json", testing::small_config().dump());
    ASSERT_TRUE(glm5_next::synthesise(folder_.path("source.json"), model(), {}, pool_).is_ok());
  }

  std::string model() const { return folder_.path("model"); }
  void write(const std::string& relative, const std::string& text) const {
    std::ofstream(folder_.path(relative), std::ios::binary) << text;
  }
  std::string read(const std::string& relative) const {
    std::ifstream file(folder_.path(relative), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void set_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(read("model/config.json"));
    change(config);
    write("model/config.json", config.dump());
  }
  // Rewrites the safetensors header, which has room behind it.
  void set_header(const std::function<void(Json&)>& change) const {
    std::string file = read("model/model.safetensors");
    uint64_t size;
    std::memcpy(&size, file.data(), 8);
    Json header = Json::parse(file.substr(8, size));
    change(header);
    std::string text = header.dump();
    const uint64_t fresh = text.size();
    std::string out(reinterpret_cast<const char*>(&fresh), 8);
    write("model/model.safetensors", out + text + file.substr(8 + size));
  }
  // The message of an error that is the user's to mend, or "" and a failure.
  std::string complaint(const std::vector<std::vector<int32_t>>& tokens = {{1, 2, 3}},
                        LogitsOptions options = {}) const {
    options.model = model();
    const auto result = compute_logits(options, tokens);
    if (result.is_ok()) return "";
    EXPECT_NE(result.status().code(), StatusCode::kInternal) << result.status().message();
    return result.status().message();
  }
  static void expect_named(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' doesn't name " << part;
  }

  testing::ScratchFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(BadInput, TheModelItselfIsFine) { EXPECT_EQ(complaint(), ""); }

TEST_F(BadInput, Tokens) {
  expect_named(complaint({}), {"no token lists"});
  expect_named(complaint({{1}, {}}), {"list 1", "empty"});
  expect_named(complaint({{1, 96}}), {"96", "position 1", "vocabulary"});
  expect_named(complaint({{-1}}), {"-1"});
  set_config([](Json& c) { c["text_config"]["max_position_embeddings"] = 2; });
  expect_named(complaint(), {"3 tokens", "config.json", "max_position_embeddings"});
}

TEST_F(BadInput, Options) {
  for (auto [change, part] : std::initializer_list<std::pair<std::function<void(LogitsOptions&)>, const char*>>{
           {[](LogitsOptions& o) { o.cut = "tp=0"; }, "--cut"},
           {[](LogitsOptions& o) { o.cut = "xx=2"; }, "--cut"},
           {[](LogitsOptions& o) { o.cut = "tp=64"; }, "KDA heads"},
           {[](LogitsOptions& o) { o.cut = "ep=64"; }, "experts"},
           {[](LogitsOptions& o) { o.dtype = "f64"; }, "--dtype"},
           {[](LogitsOptions& o) { o.device = "tpu"; }, "--device"},
           {[](LogitsOptions& o) { o.variants = {"linear"}; }, "--variant"},
           {[](LogitsOptions& o) { o.variants = {"linear=none_such"}; }, "none_such"},
           {[](LogitsOptions& o) { o.replay = true; }, "--decode-from"},
           {[](LogitsOptions& o) { o.images = {"/absent.png"}; }, "processor_config.json"}}) {
    LogitsOptions options;
    change(options);
    expect_named(complaint({{1, 2, 3}}, options), {part});
  }
}

TEST_F(BadInput, Config) {
  const std::string good = read("model/config.json");
  for (auto [field, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"hidden_size", 0},
                                                           {"hidden_size", "64"},
                                                           {"hidden_size", 64.5},
                                                           {"hidden_size", -64},
                                                           {"num_hidden_layers", 1000000000000},
                                                           {"index_topk", 15},
                                                           {"qk_rope_head_dim", 64},
                                                           {"hidden_act", "gelu"},
                                                           {"num_experts_per_tok", 9},
                                                           {"layer_types", {"linear_attention"}},
                                                           {"layer_types", "x"},
                                                           {"indexer_types", {"full", "shared", "shared", "full"}},
                                                           {"n_group", 3},
                                                           {"mhc", false},
                                                           {"num_key_value_heads", 2}}) {
    write("model/config.json", good);
    set_config([&](Json& c) { c["text_config"][field] = value; });
    expect_named(complaint(), {"config.json", field});
  }
  write("model/config.json", good.substr(0, good.size() / 2));
  expect_named(complaint(), {"config.json", "not JSON"});
  write("model/config.json", "[]");
  expect_named(complaint(), {"config.json"});
  write("model/config.json", good);
  set_config([](Json& c) { c["model_type"] = "llama"; });
  expect_named(complaint(), {"config.json", "model_type", "llama"});
  std::filesystem::remove(folder_.path("model/config.json"));
  expect_named(complaint(), {"config.json"});
}

TEST_F(BadInput, Tensors) {
  const std::string good = read("model/model.safetensors");
  const std::string name = "model.language_model.layers.0.self_attn.q_proj.weight";
  auto restored = [&] { write("model/model.safetensors", good); };
  write("model/model.safetensors", good.substr(0, good.size() - 1));
  expect_named(complaint(), {"model.safetensors", "incomplete"});
  write("model/model.safetensors", good.substr(0, 100));
  expect_named(complaint(), {"model.safetensors", "truncated"});
  write("model/model.safetensors", "");
  expect_named(complaint(), {"model.safetensors"});
  restored();
  set_header([&](Json& h) { h.erase(name); });
  expect_named(complaint(), {name, "nearest"});
  restored();
  set_header([&](Json& h) { h[name]["shape"] = {32, 128}; });
  expect_named(complaint(), {name, "config.json", "[64, 64]"});
  restored();
  set_header([&](Json& h) { h[name]["dtype"] = "I32", h[name]["shape"] = {32, 64}; });
  expect_named(complaint(), {name});
  restored();
  set_header([&](Json& h) { h[name]["dtype"] = "F8_E4M3", h[name]["shape"] = {128, 64}; });
  expect_named(complaint(), {name});
  restored();
  set_header([&](Json& h) { h[name]["data_offsets"] = h["lm_head.weight"]["data_offsets"]; });
  expect_named(complaint(), {"model.safetensors"});
  std::filesystem::remove(folder_.path("model/model.safetensors"));
  expect_named(complaint(), {"model.safetensors"});
  write("model/model.safetensors.index.json", R"({"weight_map": {"a": "../secret.safetensors"}})");
  expect_named(complaint(), {"index.json", "../secret.safetensors"});
}

}  // namespace
}  // namespace lathe
