// Models of random shape, by every path against the plain one. Once with a fixed seed in the usual suite; scripts/soak
// repeats it with --gtest_shuffle, where every repetition has a seed of its own (gtest prints it: that is the way
// back).
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/thread_pool.h"
#include "lathe/logits.h"
#include "model/glm5_next/synth.h"
#include "testing/golden.h"
#include "testing/scratch_folder.h"
#include "testing/small_config.h"

namespace lathe {
namespace {

using nlohmann::json;

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[between(0, static_cast<int>(list.size()) - 1)];
  }

 private:
  std::mt19937 random_;
};

// Widths off every tile, K like V only by chance of the format, pools and convolutions of all lengths, every gate form.
json random_config(Draw& d) {
  json c = testing::small_config();
  c["dtype"] = "float32";
  c.erase("vision_config");
  json& t = c["text_config"];
  const int layers = d.between(1, 5), heads = d.one_of({2, 4}), kda_heads = d.one_of({2, 4});
  t["dtype"] = "float32";
  t["hidden_size"] = 4 * d.between(5, 24);
  t["num_hidden_layers"] = layers;
  t["intermediate_size"] = d.between(9, 100);
  t["moe_intermediate_size"] = d.between(7, 50);
  std::vector<std::string> mixers, feed_forwards, indexers;
  for (int l = 0; l < layers; ++l) {
    const bool sparse = d.between(0, 2) == 0, after_sparse = !mixers.empty() && mixers.back() != "linear_attention";
    mixers.push_back(sparse ? "deepseek_sparse_attention" : "linear_attention");
    feed_forwards.push_back(d.one_of({"dense", "sparse", "sparse"}));
    indexers.push_back(sparse && after_sparse && d.between(0, 1) ? "shared" : "full");
  }
  t["layer_types"] = mixers, t["mlp_layer_types"] = feed_forwards, t["indexer_types"] = indexers;
  const int groups = d.one_of({1, 2, 4}), experts = groups * d.one_of({2, 4});
  t["n_group"] = groups, t["topk_group"] = d.between(1, groups), t["n_routed_experts"] = experts;
  t["num_experts_per_tok"] = d.between(1, std::min(4, experts / groups * t["topk_group"].get<int>()));
  t["n_shared_experts"] = d.between(0, 2), t["norm_topk_prob"] = d.between(0, 1) == 1;
  t["num_attention_heads"] = heads, t["num_key_value_heads"] = heads;
  t["q_lora_rank"] = d.between(5, 60), t["kv_lora_rank"] = d.between(9, 50);
  t["qk_nope_head_dim"] = d.between(5, 40), t["v_head_dim"] = d.between(5, 40);
  const int kpool = d.one_of({1, 2, 3, 4, 8});
  t["index_kpool"] = kpool, t["index_topk"] = kpool * d.between(1, 12);
  t["index_n_heads"] = d.one_of({1, 3, 8}), t["index_head_dim"] = d.between(5, 40);
  t["index_kpool_always_select_tail"] = d.between(0, 3) > 0;
  json& kda = t["linear_attn_config"];
  kda["num_heads"] = kda_heads, kda["head_dim"] = d.between(5, 40), kda["short_conv_kernel_size"] = d.between(2, 6);
  if (d.between(0, 1))
    kda["gate_lower_bound"] = -d.between(1, 6);
  else
    kda["gate_lower_bound"] = nullptr;
  t["hc_mult"] = d.between(1, 5);
  t["num_nextn_predict_layers"] = d.between(0, 1);
  return c;
}

struct Path {
  const char* name;
  LogitsOptions options;
  bool bit_equal = false;
};

std::vector<Path> random_paths(Draw& d) {
  const int chunk = d.between(1, 40), from = d.between(0, 80);
  return {
      {"threads", {.threads = 3}, true},
      {"chunks", {.chunk = chunk}},
      {"decode", {.chunk = chunk, .decode_from = from}},
      {"replay", {.chunk = chunk, .decode_from = from, .replay = true}},
      {"oracles", {.variants = {"*=reference"}}},
      {"sim", {.decode_from = from, .device = "sim"}},
      {"tp=2", {.decode_from = from, .cut = "tp=2"}},
      {"ep=2", {.decode_from = from, .cut = "ep=2"}},
      {"cp=3", {.chunk = 2 * chunk, .decode_from = from, .cut = "cp=3"}},
  };
}

std::vector<std::vector<int32_t>> random_tokens(Draw& d, int vocab) {
  std::vector<std::vector<int32_t>> lists;
  for (int i = 0; i < 3; ++i) {
    std::vector<int32_t> ids(d.between(1, 120));
    for (int32_t& id : ids) id = d.between(0, vocab - 1);
    lists.push_back(ids);
  }
  return lists;
}

TEST(RandomConfigs, EveryPathGivesWhatThePlainOneGives) {
  const auto seed = static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed());
  Draw d(seed + 1);
  const json config = random_config(d);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + config.dump());
  testing::ScratchFolder scratch;
  std::ofstream(scratch.path("config.json")) << config;
  ThreadPool pool(2);
  const Status made = glm5_next::synthesise(scratch.path("config.json"), scratch.path("model"), {.seed = seed}, pool);
  ASSERT_TRUE(made.is_ok()) << made.message();

  const auto tokens = random_tokens(d, config["text_config"]["vocab_size"]);
  const LogitsOptions plain{.model = scratch.path("model"), .dtype = "f32"};
  const auto expected = compute_logits(plain, tokens);
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  for (Path& path : random_paths(d)) {
    path.options.model = plain.model, path.options.dtype = plain.dtype;
    const auto result = compute_logits(path.options, tokens);
    ASSERT_TRUE(result.is_ok()) << path.name << ": " << result.status().message();
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_TRUE(!path.bit_equal || result->at(i).logits == expected->at(i).logits) << path.name;
      EXPECT_LE(testing::rms_ratio(result->at(i).logits, expected->at(i).logits), 1e-5)
          << path.name << ", list of " << tokens[i].size() << ", chunk " << path.options.chunk << ", decode from "
          << path.options.decode_from;
    }
  }
}

}  // namespace
}  // namespace lathe
