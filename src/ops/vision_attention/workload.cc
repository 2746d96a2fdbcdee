#include "ops/workload.h"

#include "ops/vision_attention/vision_attention.h"

namespace lathe {

namespace {

struct Shape {
  int heads, dim;
  std::vector<std::pair<int, int>> frames;  // patch grids, a segment each
  bool bench;
};

// Patches in the order of the model: 2 x 2 blocks row-major, row-major inside a block; odd grids plainly row-major.
void place(int height, int width, std::vector<int32_t>& row, std::vector<int32_t>& col) {
  const int step = height % 2 || width % 2 ? 1 : 2;
  for (int y = 0; y < height; y += step)
    for (int x = 0; x < width; x += step)
      for (int i = 0; i < step * step; ++i) row.push_back(y + i / step), col.push_back(x + i % step);
}

VisionAttentionArgs make_args(CaseBuilder& b, const Shape& s, DType t) {
  std::vector<int32_t> row, col, start = {0};
  for (auto [height, width] : s.frames)
    place(height, width, row, col), start.push_back(static_cast<int32_t>(row.size()));
  const int64_t patches = start.back(), width = int64_t{s.heads} * s.dim;
  return {.qkv = b.rows(patches, 3 * width, t),
          .q_norm = b.vector(s.dim, 0.3, 1.5),  // above 1: scores sharp enough for the maximum to matter
          .k_norm = b.vector(s.dim, 0.3, 1.5),
          .row = b.ints(row),
          .col = b.ints(col),
          .segment_start = b.ints(start),
          .out = b.empty_rows(patches, width, t),
          .heads = s.heads,
          .dim = s.dim};
}

Case<VisionAttentionArgs> attention_case(const char* name, const Shape& s, DType t) {
  int64_t patches = 0, pairs = 0;
  for (auto [h, w] : s.frames) patches += h * w, pairs += int64_t{h} * w * h * w;
  const CaseInfo info{.name = fmt::format("{}_{}", name, dtype_name(t)),
                      .bytes = patches * s.heads * s.dim * 4 * dtype_bytes(t),
                      .flop = pairs * s.heads * s.dim * 4,
                      .traffic = Traffic::kRead,
                      .precision = t == DType::kF32 ? Precision::kFp32 : Precision::kBf16,
                      .tolerance = t == DType::kF32 ? 5e-6 : 5e-3,
                      .bench = s.bench};
  return {info, [=](CaseBuilder& b) { return make_args(b, s, t); }};
}

VisionAttentionArgs segments_of(VisionAttentionArgs a, SequencePart& part) {
  a.segment_start = part.cut({a.segment_start, {}}).start;
  a.qkv = part.of(a.qkv), a.out = part.of(a.out);
  a.row = part.by_row(a.row), a.col = part.by_row(a.col);
  return a;
}

}  // namespace

AnyOp vision_attention_workload() {
  std::vector<Case<VisionAttentionArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16}) {
    cases.push_back(attention_case("one_patch", {1, 4, {{1, 1}}, false}, t));
    cases.push_back(attention_case("pictures_h3x20", {3, 20, {{3, 5}, {0, 0}, {1, 1}, {7, 11}}, false}, t));
    cases.push_back(attention_case("clip_h2x64", {2, 64, {{8, 10}, {8, 10}, {8, 10}}, false}, t));
    cases.push_back(attention_case("past_a_key_block_h1x72", {1, 72, {{17, 19}}, false}, t));
    cases.push_back(attention_case("picture448_h16x64", {16, 64, {{32, 32}}, true}, t));
    cases.push_back(attention_case("clip8_h16x64", {16, 64, std::vector<std::pair<int, int>>(8, {16, 16}), true}, t));
  }
  return any_op<VisionAttentionArgs>(kVisionAttention, std::move(cases), nullptr, segments_of);
}

}  // namespace lathe
