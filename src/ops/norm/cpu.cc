#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/norm/variants.h"
#include "ops/row_floats.h"

// A row is read into fp32 scratch once; sums run in 16 lanes, an order that any vector width can keep.
namespace lathe::portable {

namespace {

constexpr int kLanes = 16;

float lane_sum(const float* lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

// term(i) summed over [0, count).
template <class Term>
float sum_of(int64_t count, Term term) {
  float lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  return lane_sum(lanes);
}

float gelu(float x) { return 0.5f * x * (1 + std::erf(x * static_cast<float>(1 / std::numbers::sqrt2))); }

void rms_row(const NormArgs& args, float* x) {
  const int64_t width = args.x.width;
  const float scale =
      1 / std::sqrt(sum_of(width, [&](int64_t i) { return x[i] * x[i]; }) / static_cast<float>(width) + args.eps);
  if (args.y.dtype == DType::kBF16)
    for (int64_t i = 0; i < width; ++i) x[i] = args.weight[i] * round_bf16(x[i] * scale);
  else
    for (int64_t i = 0; i < width; ++i) x[i] = args.weight[i] * (x[i] * scale);
}

void layer_row(const NormArgs& args, float* x) {
  const int64_t width = args.x.width;
  const float n = static_cast<float>(width);
  const float mean = sum_of(width, [&](int64_t i) { return x[i]; }) / n;
  const float variance = sum_of(width, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / n;
  const float scale = 1 / std::sqrt(variance + args.eps);
  for (int64_t i = 0; i < width; ++i) x[i] = args.weight[i] * ((x[i] - mean) * scale) + args.bias[i];
}

}  // namespace

Status norm(OpContext& ctx, const NormArgs& args) {
  const int64_t width = args.x.width;
  // 32K values a task: a wake-up of the pool costs about as much as it takes to norm them.
  const int64_t rows_per_task = std::max<int64_t>(1, 32768 / std::max<int64_t>(width, 1));
  ctx.pool->run((args.x.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    std::vector<float> x(width);
    const int64_t end = std::min(args.x.rows, (task + 1) * rows_per_task);
    for (int64_t r = task * rows_per_task; r < end; ++r) {
      read_row(args.x, r, x.data());
      args.kind == NormKind::kRms ? rms_row(args, x.data()) : layer_row(args, x.data());
      if (args.gelu) std::transform(x.begin(), x.end(), x.begin(), gelu);
      write_row(args.y, r, x.data());
    }
  });
  return Status::ok();
}

}  // namespace lathe::portable
