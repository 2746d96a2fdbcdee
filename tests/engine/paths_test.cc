// Every path through the engine against the plain one, and the classes of docs/paths.md: bit-equal, or another order of
// sums within 1e-5 on logits in f32.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lathe/logits.h"
#include "model/glm5_next/synth.h"
#include "testing/golden.h"
#include "testing/scratch_folder.h"
#include "testing/small_config.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::rms_ratio;

constexpr double kOtherOrder = 1e-5;

// Deterministic ids: lengths around chunk, pool and page sizes.
std::vector<std::vector<int32_t>> token_lists(int vocab) {
  std::vector<std::vector<int32_t>> lists;
  uint32_t state = 12345;
  for (int length : {1, 2, 3, 4, 5, 63, 64, 65, 130}) {
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % vocab;
    lists.push_back(ids);
  }
  return lists;
}

struct Path {
  const char* name;
  int chunk = 0, decode_from = -1;
  bool replay = false;
  const char* cut = "";
  int threads = 1;
  bool bit_equal = false;
  const char* device = "cpu";
};

constexpr Path kPaths[] = {
    {.name = "two threads", .threads = 2, .bit_equal = true},
    {.name = "token by token", .chunk = 1},
    {.name = "chunks of 3", .chunk = 3},
    {.name = "chunks of 17", .chunk = 17},
    {.name = "chunks of 64", .chunk = 64},
    {.name = "decode from 0", .decode_from = 0},
    {.name = "decode from 60", .decode_from = 60},
    {.name = "replay from 0", .decode_from = 0, .replay = true},
    {.name = "replay from 50 after chunks", .chunk = 20, .decode_from = 50, .replay = true},
    {.name = "tp=2", .cut = "tp=2"},
    {.name = "ep=2", .cut = "ep=2"},
    {.name = "cp=2", .cut = "cp=2"},
    {.name = "cp=4", .cut = "cp=4"},
    {.name = "cp=4, chunks of 33, decode from 90", .chunk = 33, .decode_from = 90, .cut = "cp=4"},
    {.name = "tp=2 by replay", .decode_from = 40, .replay = true, .cut = "tp=2"},
    {.name = "sim, chunks of 29, replay from 60", .chunk = 29, .decode_from = 60, .replay = true, .device = "sim"},
    {.name = "sim, cp=2", .cut = "cp=2", .device = "sim"},
};

class Paths : public ::testing::TestWithParam<const char*> {};

TEST_P(Paths, EqualThePlainOne) {
  const std::string model = fixture(std::string("models/") + GetParam());
  if (model.empty()) GTEST_SKIP() << "models/" << GetParam() << " is in neither tests/data nor the reference set";
  const auto lists = token_lists(512);
  LogitsOptions plain{.model = model, .dtype = "f32"};
  const auto expected = compute_logits(plain, lists);
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  for (const Path& path : kPaths) {
    LogitsOptions options = plain;
    options.chunk = path.chunk, options.decode_from = path.decode_from, options.replay = path.replay;
    options.cut = path.cut, options.threads = path.threads, options.device = path.device;
    const auto result = compute_logits(options, lists);
    ASSERT_TRUE(result.is_ok()) << path.name << ": " << result.status().message();
    for (size_t i = 0; i < lists.size(); ++i) {
      if (path.bit_equal)
        EXPECT_EQ(result.value()[i].logits, expected.value()[i].logits) << path.name << " list " << i;
      else
        EXPECT_LE(rms_ratio(result.value()[i].logits, expected.value()[i].logits), kOtherOrder)
            << path.name << " list " << i;
    }
  }
}

// The variants of `strict`: the same sums in the same order, however a prompt is cut.
TEST_P(Paths, StrictVariantsGiveEqualBitsForEveryCutOfAPrompt) {
  const std::string model = fixture(std::string("models/") + GetParam());
  if (model.empty()) GTEST_SKIP() << "models/" << GetParam() << " is in neither tests/data nor the reference set";
  const auto lists = token_lists(512);
  for (const char* dtype : {"f32", "bf16"}) {
    LogitsOptions options{.model = model, .dtype = dtype};
    options.variants = {"kda_prefill=sequential", "sparse_mla=absorbed"};
    const auto expected = compute_logits(options, lists);
    ASSERT_TRUE(expected.is_ok()) << expected.status().message();
    for (auto [chunk, decode_from] : {std::pair{1, -1}, {3, -1}, {17, -1}, {64, -1}, {0, 0}, {13, 50}}) {
      options.chunk = chunk, options.decode_from = decode_from;
      const auto result = compute_logits(options, lists);
      ASSERT_TRUE(result.is_ok()) << result.status().message();
      for (size_t i = 0; i < lists.size(); ++i)
        EXPECT_EQ(result.value()[i].logits, expected.value()[i].logits)
            << dtype << " chunk " << chunk << " decode from " << decode_from << " list " << i;
    }
  }
}

// Embeddings that serve as LM head are cut as the head would be, and only there.
TEST(TiedEmbeddings, EqualUncutUnderEveryCut) {
  nlohmann::json config = testing::small_config();
  config["tie_word_embeddings"] = true;
  if (config.contains("text_config")) config["text_config"]["tie_word_embeddings"] = true;
  const testing::ScratchFolder folder;
  std::ofstream(folder.path("tied.json")) << config.dump();
  ThreadPool pool(1);
  ASSERT_TRUE(glm5_next::synthesise(folder.path("tied.json"), folder.path("tied"), {.seed = 3}, pool).is_ok());
  const auto lists = token_lists(glm5_next::Config::read(folder.path("tied")).value().text.vocab);
  LogitsOptions options{.model = folder.path("tied"), .dtype = "f32"};
  const auto expected = compute_logits(options, lists);
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  for (const char* cut : {"tp=2", "ep=2", "cp=2"}) {
    options.cut = cut;
    const auto result = compute_logits(options, lists);
    ASSERT_TRUE(result.is_ok()) << cut << ": " << result.status().message();
    for (size_t i = 0; i < lists.size(); ++i)
      EXPECT_LE(rms_ratio(result.value()[i].logits, expected.value()[i].logits), kOtherOrder) << cut << " list " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Paths, ::testing::Values("tiny", "tiny_shared", "realdims_fp8"));

}  // namespace
}  // namespace lathe
