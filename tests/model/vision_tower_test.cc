#include "model/glm5_next/vision_tower.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/checkpoint.h"
#include "ops/row_floats.h"
#include "testing/golden.h"

namespace lathe::glm5_next {

namespace {

using testing::floats;
using testing::rms_ratio;

// A model's tower on a device, and what a pass needs.
class Tower {
 public:
  Tower(const std::string& dir, DType dtype, std::unique_ptr<Device> device = make_cpu_device(), int threads = 2)
      : device(std::move(device)), pool(threads) {
    const Config config = Config::read(dir).value();
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(dir).value());
    tower = std::make_unique<VisionTower>(
        *config.vision, load_vision_weights(*config.vision, *checkpoint, *this->device).value(), dtype);
    activations = Arena::create(*this->device, int64_t{256} << 20).value();
    scratch = Arena::create(*this->device, int64_t{256} << 20).value();
    op.device = this->device.get();
    op.pool = &pool;
    op.scratch = &scratch;
  }

  std::vector<float> encode(const std::vector<const Patches*>& media, const VisionTap& tap = {}) {
    const Rows features = activations.rows(tower->feature_rows(media), tower->config().out_hidden, tower->dtype());
    const Status s = tower->encode(op, activations, media, features, tap);
    EXPECT_TRUE(s.is_ok()) << s.message();
    return host(features);
  }
  std::vector<float> host(const Rows& rows) {
    std::vector<char> bytes(rows.rows * rows.stride * dtype_bytes(rows.dtype));
    EXPECT_TRUE(device->to_host(bytes.data(), rows.data, static_cast<int64_t>(bytes.size())).is_ok());
    std::vector<float> values(rows.rows * rows.width);
    Rows here = rows;
    here.data = bytes.data();
    for (int64_t r = 0; r < rows.rows; ++r) read_row(here, r, values.data() + r * rows.width);
    return values;
  }

  std::unique_ptr<Device> device;
  ThreadPool pool;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<VisionTower> tower;
  Arena activations, scratch;
  OpContext op;
};

#define LATHE_MODEL(var, relative)                    \
  const std::string var = testing::fixture(relative); \
  if (var.empty()) GTEST_SKIP() << relative << " is in neither tests/data nor the reference set"

Patches from_bytes(const Safetensors& file, Grid grid, int64_t first_patch) {
  Patches p = preprocess_image({1, 1, {0, 0, 0}}, PixelConfig()).value();  // for the table of values
  p.grid = grid;
  const auto* bytes = static_cast<const uint8_t*>(file.find("patches_u8")->data) + first_patch * p.width;
  p.pixels.assign(bytes, bytes + grid.patches() * p.width);
  return p;
}

// Every stage of the reference, three pictures in one call, one of them of three slices.
TEST(VisionTower, EveryStageEqualsTheReference) {
  LATHE_MODEL(dir, "models/tiny");
  LATHE_GOLDEN(file, "golden/vision_tower.safetensors");
  Tower t(dir, DType::kF32);
  const std::vector<int32_t> g = testing::ints(file, "grid_thw");
  std::vector<Grid> grids;
  for (size_t i = 0; i < g.size(); i += 3) grids.push_back({g[i], g[i + 1], g[i + 2]});
  const PatchLayout layout = lay_out(grids, 2);
  const std::vector<float> pixels = floats(file, "pixels");
  const auto patches = static_cast<int64_t>(layout.row.size());
  const Rows rows = t.activations.rows(patches, 1176, DType::kF32);
  std::memcpy(rows.data, pixels.data(), pixels.size() * 4);
  const auto array = [](const std::vector<int32_t>& v) {
    return Array<const int32_t>{v.data(), static_cast<int64_t>(v.size())};
  };
  const Rows features = t.activations.rows(patches / 4, 64, DType::kF32);
  int stages = 0;
  const Status s =
      t.tower->forward(t.op, t.activations, rows, {array(layout.row), array(layout.col), array(layout.segment_start)},
                       features, [&](std::string_view stage, const Rows& seen) {
                         const std::string name = stage == "downsample" ? "downsampled" : std::string(stage);
                         EXPECT_LE(rms_ratio(t.host(seen), floats(file, name)), 1e-5) << stage;
                         ++stages;
                       });
  ASSERT_TRUE(s.is_ok()) << s.message();
  EXPECT_EQ(stages, 5);
  EXPECT_LE(rms_ratio(t.host(features), floats(file, "merged")), 1e-5);
}

TEST(VisionTower, PixelsToFeaturesEqualTheReference) {
  LATHE_MODEL(dir, "models/tiny");
  LATHE_GOLDEN(images, "golden/multimodal_image.safetensors");
  LATHE_GOLDEN(video, "golden/multimodal_video.safetensors");
  Tower t(dir, DType::kF32);
  const std::vector<int32_t> g = testing::ints(images, "grid_thw"), v = testing::ints(video, "grid_thw");
  const Patches first = from_bytes(images, {g[0], g[1], g[2]}, 0);
  const Patches second = from_bytes(images, {g[3], g[4], g[5]}, first.grid.patches());
  const Patches clip = from_bytes(video, {v[0], v[1], v[2]}, 0);
  EXPECT_LE(rms_ratio(t.encode({&first, &second}), floats(images, "image_features")), 1e-5);
  EXPECT_LE(rms_ratio(t.encode({&clip}), floats(video, "video_features")), 1e-5);

  // In company, alone, with one thread: the same bits.
  std::vector<float> together = t.encode({&first, &clip, &second}), apart = t.encode({&first});
  Tower lone(dir, DType::kF32, make_cpu_device(), 1);
  for (const Patches* p : {&clip, &second}) {
    const std::vector<float> more = lone.encode({p});
    apart.insert(apart.end(), more.begin(), more.end());
  }
  EXPECT_EQ(together, apart);
}

TEST(VisionTower, RunsOnTheSimDevice) {
  LATHE_MODEL(dir, "models/tiny");
  LATHE_GOLDEN(images, "golden/multimodal_image.safetensors");
  Tower t(dir, DType::kF32, make_sim_device());
  const std::vector<int32_t> g = testing::ints(images, "grid_thw");
  const Patches first = from_bytes(images, {g[0], g[1], g[2]}, 0);
  std::vector<float> golden = floats(images, "image_features");
  golden.resize(first.grid.tokens(2) * 64);
  EXPECT_LE(rms_ratio(t.encode({&first}), golden), 1e-5);
}

// bf16 weights and activations against the f32 golden of the unrounded weights: the distance that rounding explains.
TEST(VisionTower, Bf16StaysNearTheReference) {
  LATHE_MODEL(dir, "models/tiny_bf16");
  LATHE_GOLDEN(images, "golden/multimodal_image.safetensors");
  Tower t(dir, DType::kBF16);
  const std::vector<int32_t> g = testing::ints(images, "grid_thw");
  const Patches first = from_bytes(images, {g[0], g[1], g[2]}, 0);
  std::vector<float> golden = floats(images, "image_features");
  golden.resize(first.grid.tokens(2) * 64);
  EXPECT_LE(rms_ratio(t.encode({&first}), golden), 2e-2);
}

TEST(VisionTower, RefusesPatchesOfAnotherProcessor) {
  LATHE_MODEL(dir, "models/tiny");
  Tower t(dir, DType::kF32);
  PixelConfig wide;
  wide.patch = 16;
  const Patches p = preprocess_image({1, 1, {0, 0, 0}}, wide).value();
  const std::vector<const Patches*> media = {&p};
  const Rows features = t.activations.rows(t.tower->feature_rows(media), 64, DType::kF32);
  EXPECT_EQ(t.tower->encode(t.op, t.activations, media, features).code(), StatusCode::kInvalid);
}

// What encode takes of the arena stays within what it announces.
TEST(VisionTower, ActivationsStayWithinThePlan) {
  LATHE_MODEL(dir, "models/tiny");
  Tower t(dir, DType::kF32);
  PixelConfig config;
  config.max_tokens = 1100;  // 4400 patches: a segment larger than a group
  const Patches small = preprocess_image({28, 28, std::vector<uint8_t>(28 * 28 * 3, 9)}, config).value();
  const Patches large = preprocess_image({2000, 1700, std::vector<uint8_t>(2000 * 1700 * 3, 90)}, config).value();
  for (const std::vector<const Patches*>& media : {std::vector<const Patches*>{&small, &small}, {&small, &large}}) {
    t.activations.reset();
    Arena fresh = Arena::create(*t.device, int64_t{256} << 20).value();
    const Rows features = t.activations.rows(t.tower->feature_rows(media), 64, DType::kF32);
    ASSERT_TRUE(t.tower->encode(t.op, fresh, media, features).is_ok());
    EXPECT_LE(fresh.peak_bytes(), t.tower->activation_bytes(media.back()->grid.patches()));
  }
}

}  // namespace

}  // namespace lathe::glm5_next
