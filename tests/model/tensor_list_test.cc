#include "model/glm5_next/tensor_list.h"

#include <gtest/gtest.h>

#include <map>

#include "base/mapped_file.h"
#include "model/checkpoint.h"
#include "testing/golden.h"

namespace lathe::glm5_next {

namespace {

constexpr const char* kReleased = "bench/configs/glm-5.3-flash-fp8.json";

struct Released {
  std::string text = read_text_file(testing::source_file(kReleased), 1 << 20).value();
  Config config = Config::parse(text, kReleased).value();
};

std::map<TensorPart, int64_t> parameters_by_part(const std::vector<TensorInfo>& tensors) {
  std::map<TensorPart, int64_t> sum;
  for (const TensorInfo& t : tensors)
    if (!t.scale) sum[t.part] += t.count();
  return sum;
}

// The numbers of the published model: model.md 12.1 and 12.4.
TEST(TensorList, TheReleasedModelHasItsPublishedCounts) {
  const Released released;
  ASSERT_EQ(read_weight_format(released.text, kReleased).value(), WeightFormat::kBlockFp8);
  const std::vector<TensorInfo> tensors = list_tensors(released.config, WeightFormat::kBlockFp8);
  EXPECT_EQ(tensors.size(), 76108u);
  EXPECT_EQ(std::count_if(tensors.begin(), tensors.end(), [](const TensorInfo& t) { return t.scale; }), 37338);
  EXPECT_EQ(
      std::count_if(tensors.begin(), tensors.end(), [](const TensorInfo& t) { return t.part == TensorPart::kVision; }),
      347);

  std::map<TensorPart, int64_t> part = parameters_by_part(tensors);
  EXPECT_EQ(part[TensorPart::kEmbedding], 634388480);
  EXPECT_EQ(part[TensorPart::kLmHead], 634388480);
  EXPECT_EQ(part[TensorPart::kKda], 34 * int64_t{137732288});
  EXPECT_EQ(part[TensorPart::kMla], 11 * int64_t{117442560});
  EXPECT_EQ(part[TensorPart::kIndexer], 11 * int64_t{7471872});
  EXPECT_EQ(part[TensorPart::kHyper], 45 * int64_t{786486});
  EXPECT_EQ(part[TensorPart::kNorms], 45 * int64_t{8192} + 4096);
  EXPECT_EQ(part[TensorPart::kDense], 3 * int64_t{150994944});
  EXPECT_EQ(part[TensorPart::kRouter] + part[TensorPart::kShared] + part[TensorPart::kExperts],
            42 * int64_t{7274103072});
  EXPECT_EQ(part[TensorPart::kMtp], 7432592416);
  EXPECT_EQ(part[TensorPart::kVision], 563627008);
  int64_t all = 0, bytes = 0;
  for (const auto& [p, count] : part) all += count;
  for (const TensorInfo& t : tensors) bytes += t.bytes();
  EXPECT_EQ(all, 321323031390);
  EXPECT_NEAR(static_cast<double>(bytes), 328.3e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(released.config, tensors)), 16.74e9, 0.005e9);
}

// Every model of the reference set holds just these tensors, in these shapes.
TEST(TensorList, ListsWhatCheckpointsOfTheReferenceHold) {
  for (const char* model : {"tiny", "tiny_bf16", "tiny_shared", "realdims_bf16", "realdims_fp8"}) {
    SCOPED_TRACE(model);
    const std::string file = testing::fixture(std::string("models/") + model + "/config.json");
    if (file.empty()) GTEST_SKIP() << "models/" << model << " is in neither tests/data nor the reference set";
    const std::string dir = file.substr(0, file.rfind('/'));
    const Config config = Config::read(dir).value();
    const WeightFormat format = read_weight_format(read_text_file(file, 1 << 20).value(), file).value();
    const Checkpoint checkpoint = Checkpoint::open(dir).value();
    const std::vector<TensorInfo> tensors = list_tensors(config, format);
    for (const TensorInfo& t : tensors) {
      const TensorSpan* span = checkpoint.find(t.name);
      ASSERT_NE(span, nullptr) << t.name;
      EXPECT_EQ(span->shape, t.shape) << t.name;
      // Hyper-connections and the pool's position table are bf16 or f32, as a release likes; the rest is settled.
      if (t.part != TensorPart::kHyper && !t.name.ends_with("_ape")) {
        EXPECT_EQ(span->dtype, t.dtype) << t.name;
      }
    }
    EXPECT_EQ(tensors.size(), checkpoint.tensors().size());
  }
}

TEST(TensorList, EightBitFormsBringScalesForWhatTheyCover) {
  Config config = Released().config;
  for (const WeightFormat format : {WeightFormat::kBlockFp8, WeightFormat::kRowInt8, WeightFormat::kRowFp8}) {
    const std::vector<TensorInfo> tensors = list_tensors(config, format);
    int kda = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& t = tensors[i];
      if (!t.block_out || t.scale) continue;
      ASSERT_LT(i + 1, tensors.size());
      const TensorInfo& s = tensors[i + 1];
      ASSERT_TRUE(s.scale);
      EXPECT_EQ(s.name, t.name + (format == WeightFormat::kBlockFp8 ? "_scale_inv" : "_scale"));
      EXPECT_EQ(s.shape[0], (t.shape[0] + t.block_out - 1) / t.block_out);
      EXPECT_EQ(s.shape[1], (t.shape[1] + t.block_in - 1) / t.block_in);
      kda += t.part == TensorPart::kKda;
    }
    EXPECT_EQ(kda, format == WeightFormat::kBlockFp8 ? 0 : 34 * 4);
  }
}

TEST(TensorList, AForeignQuantisationIsRefusedByName) {
  const std::string config = R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})";
  const Status status = read_weight_format(config, "x/config.json").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalid);
  EXPECT_NE(status.message().find("gptq"), std::string::npos);
  EXPECT_NE(status.message().find("x/config.json"), std::string::npos);
  EXPECT_FALSE(
      read_weight_format(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}})", "c")
          .is_ok());
  EXPECT_EQ(read_weight_format("{}", "c").value(), WeightFormat::kPlain);
}

}  // namespace

}  // namespace lathe::glm5_next
