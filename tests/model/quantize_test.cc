#include "model/glm5_next/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "model/checkpoint.h"
#include "model/glm5_next/synth.h"
#include "model/glm5_next/weights.h"
#include "model/row_quantizer.h"
#include "ops/row_floats.h"
#include "testing/golden.h"
#include "testing/scratch_folder.h"
#include "testing/small_config.h"

namespace lathe::glm5_next {

namespace {

using testing::ScratchFolder;
using testing::small_config;

constexpr const char* kText = "model.language_model.";

std::vector<float> numbers(const TensorSpan& span) {
  std::vector<float> values(span.count());
  read_floats(span.data, span.dtype, span.count(), values.data());
  return values;
}

std::string bytes_of(const TensorSpan& span) {
  return {static_cast<const char*>(span.data), static_cast<size_t>(span.bytes)};
}

// A folder with a random model, and tests' own files beside it.
std::string random_model(const ScratchFolder& folder, const nlohmann::json& config, ThreadPool& pool) {
  std::ofstream(folder.path("config.json")) << config.dump();
  EXPECT_TRUE(synthesise(folder.path("config.json"), folder.path("in"), {.seed = 2}, pool).is_ok());
  std::ofstream(folder.path("in/tokenizer.json")) << "{\"tokens\": \"Zähler\"}";
  std::ofstream(folder.path("in/chat_template.jinja")) << "{{ messages }}";
  return folder.path("in");
}

TEST(Quantize, WideMatricesChangeFormAllElseStaysByteForByte) {
  const ScratchFolder folder;
  ThreadPool pool(2);
  const std::string in = random_model(folder, small_config(), pool);
  const Config config = Config::read(in).value();
  const Checkpoint before = Checkpoint::open(in).value();
  for (const WeightFormat format : {WeightFormat::kRowInt8, WeightFormat::kRowFp8}) {
    SCOPED_TRACE(weight_format_name(format));
    const std::string out = folder.path(weight_format_name(format));
    const QuantizeReport report = quantize(in, out, {.format = format}, pool).value();
    const Checkpoint after = Checkpoint::open(out).value();
    const std::vector<TensorInfo> expected = list_tensors(config, format);
    EXPECT_EQ(after.tensors().size(), expected.size());
    int converted = 0;
    for (const TensorInfo& t : expected) {
      const TensorSpan* span = after.find(t.name);
      ASSERT_NE(span, nullptr) << t.name;
      EXPECT_EQ(span->dtype, t.dtype) << t.name;
      EXPECT_EQ(span->shape, t.shape) << t.name;
      converted += t.block_in && !t.scale;
      if (!t.block_in) {
        EXPECT_EQ(bytes_of(*span), bytes_of(*before.find(t.name))) << t.name;
      }
    }
    EXPECT_EQ(report.tensors, converted);
    EXPECT_EQ(report.bytes_after, after.bytes());
    EXPECT_GT(report.error_ratio, 0.001);
    EXPECT_LT(report.error_ratio, format == WeightFormat::kRowInt8 ? 0.01 : 0.03);
    for (const char* file : {"tokenizer.json", "chat_template.jinja"})
      EXPECT_EQ(read_text_file(in + "/" + file, 1 << 20).value(), read_text_file(out + "/" + file, 1 << 20).value());
    EXPECT_EQ(read_weight_format(read_text_file(out + "/config.json", 1 << 20).value(), "config.json").value(), format);

    // It loads, as what it says it is.
    auto device = make_cpu_device();
    const TextWeights weights = load_text_weights(Config::read(out)->text, after, *device, {}).value();
    EXPECT_TRUE(weights.layers[0].kda->q.is_w8a8());
    EXPECT_TRUE(weights.layers[1].feed_forward.experts[0].down.is_w8a8());
    EXPECT_FALSE(weights.layers[0].kda->f_a.is_w8a8());
    EXPECT_FALSE(weights.lm_head.is_w8a8());
  }
}

// The format's formula, row by row.
TEST(Quantize, AScaleIsTheRowsLargestOverTheTop) {
  const ScratchFolder folder;
  ThreadPool pool(2);
  const std::string in = random_model(folder, small_config(), pool),
                    name = std::string(kText) + "layers.2.mlp.experts.3.up_proj.weight";
  ASSERT_TRUE(quantize(in, folder.path("out"), {.format = WeightFormat::kRowInt8}, pool).is_ok());
  const Checkpoint before = Checkpoint::open(in).value(), after = Checkpoint::open(folder.path("out")).value();
  const std::vector<float> exact = numbers(*before.find(name));
  const auto* stored = static_cast<const int8_t*>(after.find(name)->data);
  const auto* scale = static_cast<const float*>(after.find(name + "_scale")->data);
  const int64_t in_width = before.find(name)->shape[1];
  for (int64_t r = 0; r < before.find(name)->shape[0]; ++r) {
    float largest = 0;
    for (int64_t i = 0; i < in_width; ++i) largest = std::max(largest, std::abs(exact[r * in_width + i]));
    EXPECT_EQ(scale[r], largest / 127);
    for (int64_t i = 0; i < in_width; ++i)
      EXPECT_EQ(stored[r * in_width + i], std::nearbyint(exact[r * in_width + i] / scale[r]));
  }
}

TEST(Quantize, BlocksOfTheReleaseAreDequantisedFirst) {
  const std::string file = testing::fixture("models/realdims_fp8/config.json");
  if (file.empty()) GTEST_SKIP() << "models/realdims_fp8 is in neither tests/data nor the reference set";
  const std::string in = file.substr(0, file.rfind('/'));
  const ScratchFolder folder;
  ThreadPool pool(2);
  ASSERT_TRUE(quantize(in, folder.path("out"), {.format = WeightFormat::kRowInt8}, pool).is_ok());
  const Checkpoint before = Checkpoint::open(in).value(), after = Checkpoint::open(folder.path("out")).value();
  for (const auto& [name, entry] : after.tensors()) EXPECT_FALSE(name.ends_with("_scale_inv")) << name;
  for (const char* tail : {"layers.0.mlp.gate_proj.weight", "layers.1.mlp.experts.2.down_proj.weight",
                           "layers.1.self_attn.o_proj.weight"}) {
    const std::string name = std::string(kText) + tail;
    const TensorSpan &w = *before.find(name), &scale = *before.find(name + "_scale_inv");
    const std::vector<float> stored = numbers(w), q = numbers(*after.find(name)),
                             s = numbers(*after.find(name + "_scale"));
    double error = 0, all = 0;
    for (int64_t r = 0; r < w.shape[0]; ++r)
      for (int64_t c = 0; c < w.shape[1]; ++c) {
        const double x =
            stored[r * w.shape[1] + c] * static_cast<const float*>(scale.data)[r / 128 * scale.shape[1] + c / 128];
        error += std::pow(q[r * w.shape[1] + c] * s[r] - x, 2), all += x * x;
      }
    EXPECT_LT(std::sqrt(error / all), 0.012) << name;
  }
}

// What transformers writes: experts stacked, no language_model in names, no MTP block though config.json announces one.
TEST(Quantize, StackedExpertsGetTensorsOfTheirOwn) {
  const ScratchFolder folder;
  ThreadPool pool(2);
  nlohmann::json json = small_config();
  json.erase("vision_config");
  const std::string in = random_model(folder, json, pool);
  const Config config = Config::read(in).value();
  const Checkpoint plain = Checkpoint::open(in).value();
  std::vector<TensorSource> sources;
  std::map<std::string, std::string> stacked;
  for (const TensorInfo& t : list_tensors(config, WeightFormat::kPlain)) {
    if (t.part == TensorPart::kMtp) continue;
    std::string name = t.name.starts_with(kText) ? "model." + t.name.substr(std::strlen(kText)) : t.name;
    const std::string bytes = bytes_of(*plain.find(t.name));
    if (t.part == TensorPart::kExperts) {
      name = name.substr(0, name.find("experts.") + 8) +
             (t.name.ends_with("down_proj.weight") ? "down_proj" : "gate_up_proj");
      stacked[name] += bytes;  // gate and up of an expert stand side by side in the list
      continue;
    }
    sources.push_back(
        {name, t.dtype, t.shape, [bytes, row = bytes.size() / t.shape[0]](int64_t begin, int64_t count, void* out) {
           std::memcpy(out, bytes.data() + begin * row, count * row);
         }});
  }
  for (const auto& [name, bytes] : stacked) {
    const bool down = name.ends_with("down_proj");
    const int64_t h = config.text.hidden, inner = config.text.expert_inner, n = config.text.experts;
    sources.push_back({name,
                       DType::kBF16,
                       {n, down ? h : 2 * inner, down ? inner : h},
                       [bytes, row = bytes.size() / n](int64_t begin, int64_t count, void* out) {
                         std::memcpy(out, bytes.data() + begin * row, count * row);
                       }});
  }
  NewModelFolder made = NewModelFolder::create(folder.path("stacked")).value();
  ASSERT_TRUE(made.write_tensors(std::move(sources), int64_t{1} << 30, pool, {}).is_ok());
  ASSERT_TRUE(made.finish(json.dump()).is_ok());

  ASSERT_TRUE(quantize(in, folder.path("a"), {}, pool).is_ok());
  ASSERT_TRUE(quantize(folder.path("stacked"), folder.path("b"), {}, pool).is_ok());
  const Checkpoint a = Checkpoint::open(folder.path("a")).value(), b = Checkpoint::open(folder.path("b")).value();
  for (const TensorInfo& t : list_tensors(config, WeightFormat::kRowInt8)) {
    if (t.part == TensorPart::kMtp) continue;
    const std::string name = t.name.starts_with(kText) ? "model." + t.name.substr(std::strlen(kText)) : t.name;
    ASSERT_NE(b.find(name), nullptr) << name;
    EXPECT_EQ(bytes_of(*a.find(t.name)), bytes_of(*b.find(name))) << name;
  }
  auto device = make_cpu_device();
  EXPECT_TRUE(load_text_weights(config.text, b, *device, {}).is_ok());
}

TEST(Quantize, RefusesWhatItCannotDo) {
  const ScratchFolder folder;
  ThreadPool pool(2);
  const std::string in = random_model(folder, small_config(), pool);
  auto says = [](const Result<QuantizeReport>& result, const char* words) {
    ASSERT_FALSE(result.is_ok());
    EXPECT_NE(result.status().message().find(words), std::string::npos) << result.status().message();
  };
  ASSERT_TRUE(quantize(in, folder.path("out"), {}, pool).is_ok());
  says(quantize(folder.path("out"), folder.path("twice"), {}, pool), "already");
  says(quantize(in, in, {}, pool), "only read");
  says(quantize(in, in + "/deeper", {}, pool), "only read");
  says(quantize(in, folder.path("out"), {}, pool), "not empty");
  says(quantize(folder.path("absent"), folder.path("x"), {}, pool), "absent");

  // W8A8 by its tensors, whatever config.json says.
  const std::string plain = read_text_file(in + "/config.json", 1 << 20).value();
  std::ofstream(folder.path("out/config.json")) << plain;
  says(quantize(folder.path("out"), folder.path("twice"), {}, pool), "already");

  nlohmann::json wider = nlohmann::json::parse(plain);
  wider["text_config"]["intermediate_size"] = 100;
  std::ofstream(in + "/config.json") << wider.dump();
  says(quantize(in, folder.path("x"), {}, pool), "gate_proj");
  for (const char* gone : {"x", "twice"}) EXPECT_FALSE(std::filesystem::exists(folder.path(gone))) << gone;
}

TEST(Quantize, AMatrixWithANanIsAnErrorAndLeavesNothing) {
  const ScratchFolder folder;
  ThreadPool pool(2);
  nlohmann::json config = small_config();
  config["dtype"] = config["text_config"]["dtype"] = "float32";
  const std::string in = random_model(folder, config, pool),
                    name = std::string(kText) + "layers.0.self_attn.v_proj.weight";
  const std::string file = in + "/model.safetensors";
  int64_t place;
  {
    const Safetensors tensors = Safetensors::open(file).value();
    int64_t header;
    const std::string text = read_text_file(file, int64_t{1} << 30).value();
    std::memcpy(&header, text.data(), 8);
    const auto json = nlohmann::json::parse(text.substr(8, header));
    place = 8 + header + json[name]["data_offsets"][0].get<int64_t>() + 4 * 77;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fstream patch(file, std::ios::in | std::ios::out | std::ios::binary);
  patch.seekp(place);
  patch.write(reinterpret_cast<const char*>(&nan), 4);
  patch.close();
  const Result<QuantizeReport> result = quantize(in, folder.path("out"), {}, pool);
  ASSERT_FALSE(result.is_ok());
  EXPECT_NE(result.status().message().find("NaN"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
}

TEST(RowQuantizer, ARowOfZerosHasAScaleAndNothingIsNan) {
  const std::vector<float> zeros(5, 0.0f), tiny(5, 1e-44f);
  for (const DType dtype : {DType::kI8, DType::kE4M3})
    for (const std::vector<float>& row : {zeros, tiny}) {
      const float scale = row_scale(row.data(), 5, dtype);
      EXPECT_GT(scale, 0.0f);
      std::vector<uint8_t> stored(5, 9);
      quantize_row(row.data(), 5, scale, dtype, stored.data());
      EXPECT_EQ(stored, std::vector<uint8_t>(5, 0));
    }
}

TEST(RowQuantizer, RoundsToNearestEvenAndReachesTheTopExactly) {
  // 127 makes the scale 1: what stands there is what is rounded.
  const std::vector<float> row = {127, -127, 0.5f, 1.5f, 2.5f, -2.5f, 3.49f};
  ASSERT_EQ(row_scale(row.data(), 7, DType::kI8), 1.0f);
  std::vector<int8_t> stored(7);
  const double squares = quantize_row(row.data(), 7, 1, DType::kI8, stored.data());
  EXPECT_EQ(stored, (std::vector<int8_t>{127, -127, 0, 2, 2, -2, 3}));
  EXPECT_NEAR(squares, 4 * 0.25 + 0.49 * 0.49, 1e-6);
  EXPECT_TRUE(
      std::isnan(row_scale(std::vector<float>{1, std::numeric_limits<float>::infinity()}.data(), 2, DType::kI8)));
}

}  // namespace

}  // namespace lathe::glm5_next
