#include "model/glm5_next/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bf16.h"
#include "base/mapped_file.h"
#include "testing/scratch_folder.h"
#include "testing/small_config.h"

namespace lathe::glm5_next {

namespace {

using testing::ScratchFolder;
using testing::small_config;

std::string bytes_of(const TensorSpan& span) {
  return {static_cast<const char*>(span.data), static_cast<size_t>(span.bytes)};
}

std::string written_config(const ScratchFolder& folder, const nlohmann::json& config) {
  const std::string path = folder.path("config.json");
  std::ofstream(path) << config.dump();
  return path;
}

TEST(Synth, TheSeedAloneDecidesTheBytes) {
  const ScratchFolder folder;
  const std::string config = written_config(folder, small_config());
  ThreadPool one(1), three(3);
  ASSERT_TRUE(synthesise(config, folder.path("a"), {.seed = 5}, one).is_ok());
  ASSERT_TRUE(synthesise(config, folder.path("b"), {.seed = 5, .shard_bytes = 100000}, three).is_ok());
  ASSERT_TRUE(synthesise(config, folder.path("c"), {.seed = 6}, three).is_ok());
  const Checkpoint a = Checkpoint::open(folder.path("a")).value(), b = Checkpoint::open(folder.path("b")).value(),
                   c = Checkpoint::open(folder.path("c")).value();
  const Config parsed = Config::read(folder.path("a")).value();
  const Checkpoint memory = synthesise_in_memory(parsed, WeightFormat::kPlain, 5, three).value();
  EXPECT_EQ(a.tensors().size(), list_tensors(parsed, WeightFormat::kPlain).size());
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(folder.path("b")), {}), 4);
  for (const auto& [name, entry] : a.tensors()) {
    ASSERT_NE(b.find(name), nullptr) << name;
    ASSERT_NE(memory.find(name), nullptr) << name;
    EXPECT_EQ(bytes_of(entry.span), bytes_of(*b.find(name))) << name;
    EXPECT_EQ(bytes_of(entry.span), bytes_of(*memory.find(name))) << name;
    EXPECT_NE(bytes_of(entry.span), bytes_of(*c.find(name))) << name;
  }
}

TEST(Synth, TensorsAreAlignedToTheirElementsWhateverTheirSizes) {
  nlohmann::json config = small_config();
  config["text_config"]["hidden_size"] = 37;  // odd sizes everywhere
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  config.erase("vision_config");
  const ScratchFolder folder;
  ThreadPool pool(2);
  ASSERT_TRUE(synthesise(written_config(folder, config), folder.path("m"), {}, pool).is_ok());
  const Checkpoint written = Checkpoint::open(folder.path("m")).value();
  for (const auto& [name, entry] : written.tensors()) {
    const int unit = entry.span.bytes % 64 == 0 ? 64 : dtype_bytes(entry.span.dtype);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.span.data) % unit, 0u) << name;
  }
}

// Values with scales are the plain values to within the format's step, and use its range.
TEST(Synth, EightBitFormsHoldThePlainValues) {
  const Config config = Config::parse(small_config().dump(), "small").value();
  ThreadPool pool(2);
  const Checkpoint plain = synthesise_in_memory(config, WeightFormat::kPlain, 1, pool).value();
  for (const WeightFormat format : {WeightFormat::kBlockFp8, WeightFormat::kRowInt8, WeightFormat::kRowFp8}) {
    SCOPED_TRACE(weight_format_name(format));
    const Checkpoint scaled = synthesise_in_memory(config, format, 1, pool).value();
    int seen = 0;
    const std::vector<TensorInfo> tensors = list_tensors(config, format);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& t = tensors[i];
      if (!t.block_in || t.scale) continue;
      ++seen;
      const int64_t out = t.shape[0], in = t.shape[1], scales = tensors[i + 1].shape[1];
      const void* stored = scaled.find(t.name)->data;
      const auto* scale = static_cast<const float*>(scaled.find(tensors[i + 1].name)->data);
      const auto* exact = static_cast<const bf16*>(plain.find(t.name)->data);
      double error = 0, all = 0, largest = 0;
      for (int64_t r = 0; r < out; ++r)
        for (int64_t c = 0; c < in; ++c) {
          const float x = to_float(exact[r * in + c]), s = scale[r / t.block_out * scales + c / t.block_in];
          const float q = t.dtype == DType::kI8 ? static_cast<const int8_t*>(stored)[r * in + c]
                                                : to_float(static_cast<const e4m3*>(stored)[r * in + c]);
          error += std::pow(q * s - x, 2), all += x * x;
          largest = std::max(largest, std::abs(double{q}));
        }
      EXPECT_LT(std::sqrt(error / all), t.dtype == DType::kI8 ? 0.012 : 0.03) << t.name;
      EXPECT_GT(largest, 0.6 * (t.dtype == DType::kI8 ? 127 : 448)) << t.name;
    }
    EXPECT_GT(seen, 10);
  }
}

TEST(Synth, ValuesHaveTheSpreadThatTheListAsksFor) {
  nlohmann::json json = small_config();
  json["dtype"] = json["text_config"]["dtype"] = "float32";
  const Config config = Config::parse(json.dump(), "small").value();
  ThreadPool pool(2);
  const Checkpoint checkpoint = synthesise_in_memory(config, WeightFormat::kPlain, 3, pool).value();
  for (const TensorInfo& t : list_tensors(config, WeightFormat::kPlain)) {
    if (t.count() < 4000) continue;
    const auto* x = static_cast<const float*>(checkpoint.find(t.name)->data);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < t.count(); ++i) sum += x[i];
    const double mean = sum / static_cast<double>(t.count());
    for (int64_t i = 0; i < t.count(); ++i) squares += std::pow(x[i] - mean, 2);
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(t.count())), t.initial.spread, 0.05 * t.initial.spread)
        << t.name;
    EXPECT_NEAR(mean, t.initial.middle, 0.08 * t.initial.spread) << t.name;
  }
  // A hyper-connection's streams mostly keep to themselves: 2 more on the diagonal of the mixing part, nowhere else.
  const auto* base = static_cast<const float*>(checkpoint.find("model.language_model.layers.0.hc_attn_base")->data);
  const int s = config.text.hc_copies;
  for (int i = 0; i < 2 * s + s * s; ++i) EXPECT_EQ(base[i] > 0.8f, i >= 2 * s && (i - 2 * s) % (s + 1) == 0) << i;
}

TEST(Synth, AFolderIsCompleteOrGone) {
  const ScratchFolder folder;
  const std::string config = written_config(folder, small_config());
  ThreadPool pool(2);
  std::filesystem::create_directory(folder.path("full"));
  std::ofstream(folder.path("full/notes.txt")) << "mine";
  const Status refused = synthesise(config, folder.path("full"), {}, pool);
  EXPECT_EQ(refused.code(), StatusCode::kInvalid);
  EXPECT_NE(refused.message().find("not empty"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder.path("full/notes.txt")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("full/model.safetensors")));

  // config.json can't be written where a folder has that name: everything that was written goes again.
  const auto block = [&](int64_t, int64_t, const std::string&) {
    std::filesystem::create_directories(folder.path("half/config.json/x"));
  };
  EXPECT_FALSE(synthesise(config, folder.path("half"), {.progress = block}, pool).is_ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path("half/model.safetensors")));

  nlohmann::json foreign = small_config();
  foreign["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_FALSE(synthesise(written_config(folder, foreign), folder.path("none"), {}, pool).is_ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path("none")));
}

}  // namespace

}  // namespace lathe::glm5_next
