#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lathe {
namespace {

std::vector<uint8_t> file_of(const std::string& header, int64_t data_bytes) {
  std::vector<uint8_t> bytes(8 + header.size() + data_bytes);
  const uint64_t n = header.size();
  std::memcpy(bytes.data(), &n, 8);
  std::memcpy(bytes.data() + 8, header.data(), n);
  return bytes;
}

std::string error_of(const std::vector<uint8_t>& bytes) {
  auto r = Safetensors::parse(bytes.data(), static_cast<int64_t>(bytes.size()), "x.safetensors");
  return r.is_ok() ? "" : r.status().message();
}

TEST(Safetensors, RefusesWhatDoesNotAddUp) {
  const auto good = file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  EXPECT_EQ(error_of(good), "");
  EXPECT_NE(error_of({good.begin(), good.end() - 1}).find("incomplete copy"), std::string::npos);
  EXPECT_NE(error_of({good.begin(), good.begin() + 20}).find("truncated"), std::string::npos);
  EXPECT_NE(error_of({1, 2, 3}).find("at least 8"), std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 20)).find("oversized"),
            std::string::npos);
  EXPECT_NE(error_of(file_of("[1]", 0)).find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4)).find("F33"),
            std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", 16)).find("needs 12 bytes"),
            std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[-3],"data_offsets":[0,16]}})", 16)).find("possible sizes"),
            std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}})", 16))
                .find("possible sizes"),
            std::string::npos);
  EXPECT_NE(
      error_of(
          file_of(
              R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
              12))
          .find("overlap"),
      std::string::npos);
}

TEST(Safetensors, WritesWhatItReads) {
  const std::string path = ::testing::TempDir() + "/lathe_round_trip.safetensors";
  const std::vector<float> a = {1, 2, 3};
  const std::vector<int8_t> b = {4, 5};
  auto writer = SafetensorsWriter::create(path, {{"a", DType::kF32, {3}}, {"b", DType::kI8, {2, 1}}});
  ASSERT_TRUE(writer.is_ok());
  ASSERT_TRUE(writer->append(a.data(), 12).is_ok() && writer->append(b.data(), 2).is_ok() && writer->finish().is_ok());
  const Safetensors file = Safetensors::open(path).value();
  EXPECT_EQ(std::memcmp(file.find("a")->data, a.data(), 12), 0);
  EXPECT_EQ(file.find("b")->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_NE(file.find("c").status().message().find("nearest is"), std::string::npos);
}

}  // namespace
}  // namespace lathe
