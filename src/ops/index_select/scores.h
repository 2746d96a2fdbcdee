#pragma once

#include <algorithm>
#include <cmath>

#include "ops/index_select/paged.h"

// The indexer's scores over a file's Lanes. A lane is a head: a tile of pool keys is widened to fp32 once, then
// sum[pool] += q[channel][heads]·key[pool][channel], where the key's value is broadcast from memory. So keys are read
// as they lie, nothing is transposed, and one query row costs no more than its share of many.

namespace lathe {
namespace {

// Compile-time, so that a tile's keys are at constant distances. Wider keys come in several blocks.
constexpr int kBlockDims = 128;
// Sums in registers: 24 of 32 vectors of AVX-512, 12 of 16 of AVX2.
constexpr int kTilePools = Lanes::kCount == 16 ? 24 : Lanes::kCount == 8 ? 12 : 8;

class Scorer {
 public:
  explicit Scorer(const IndexSelectArgs& args)
      : a_(args),
        pools_{args},
        groups_((args.heads + Lanes::kCount - 1) / Lanes::kCount),
        // Keys in bf16 are split into even and odd places; queries are packed in the same order.
        step_(args.pages.dtype == DType::kBF16 ? 2 * Lanes::kCount : 1),
        padded_((args.dim + step_ - 1) / step_ * step_) {}

  int64_t query_floats() const { return groups_ * (padded_ + 1) * Lanes::kCount; }
  int64_t tile_floats() const { return blocks() * kTilePools * kBlockDims; }

  // A query row as [group][channel][head of group], then the head weights [group][head of group], scaled.
  void pack(int64_t row, float* packed) const {
    std::fill(packed, packed + query_floats(), 0.0f);
    const float scale = 1 / std::sqrt(static_cast<float>(a_.heads) * static_cast<float>(a_.dim));
    for (int h = 0; h < a_.heads; ++h) {
      const int group = h / Lanes::kCount, lane = h % Lanes::kCount;
      float* q = packed + group * padded_ * Lanes::kCount + lane;
      for (int d = 0; d < a_.dim; ++d) q[place(d) * Lanes::kCount] = value(a_.query, row, h * a_.dim + d);
      packed[groups_ * padded_ * Lanes::kCount + h] = value(a_.head_weight, row, h) * scale;
    }
  }

  // scores[r][p - first] of `rows` packed queries, for pools [first, end) of a sequence.
  void score(int64_t sequence, int64_t first, int64_t end, const float* packed, int rows, float* scores, int64_t stride,
             float* tile) const {
    Keys next;
    PoolWalk walk(pools_, sequence, first, end);
    ask_keys(walk, next);
    for (int64_t p = first; p < end; p += kTilePools) {
      const int count = static_cast<int>(std::min<int64_t>(kTilePools, end - p));
      for (int k = 0; k < count; ++k) load_key(next.key[k], tile + k * kBlockDims);
      ask_keys(walk, next);
      int r = 0;
      if (groups_ == 1)
        for (; r + 2 <= rows; r += 2) {
          float* out = scores + r * stride + p - first;
          for (int half = 0; half < count; half += kTilePools / 2)
            two_rows(packed + r * query_floats(), tile + half * kBlockDims, std::min(count - half, kTilePools / 2),
                     out + half, stride, next);
        }
      for (; r < rows; ++r) one_row(packed + r * query_floats(), tile, count, scores + r * stride + p - first, next);
    }
  }

 private:
  using V = Lanes::V;

  int64_t blocks() const { return (padded_ + kBlockDims - 1) / kBlockDims; }

  // Where channel d stands in a widened key.
  int64_t place(int64_t d) const {
    if (step_ == 1) return d;
    const int64_t in_step = d % step_;
    return d - in_step + in_step / 2 + in_step % 2 * Lanes::kCount;
  }

  static float value(const Rows& r, int64_t row, int64_t i) {
    return r.dtype == DType::kBF16 ? to_float(r.b16(row)[i]) : r.f32(row)[i];
  }

  // A tile's keys as they lie in pages. They are asked for a few at a time between the products on the tile before,
  // since a core keeps only a dozen lines on the way. Behind the last pool: the last again.
  struct Keys {
    const char* key[kTilePools];
    int64_t bytes;

    void prefetch(int64_t d) const {
      if (d % 4 || d / 4 >= kTilePools) return;
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(key[d / 4] + i);
    }
  };
  void ask_keys(PoolWalk& walk, Keys& keys) const {
    const int64_t bytes = dtype_bytes(a_.pages.dtype);
    keys.bytes = a_.dim * bytes;
    for (const char*& key : keys.key) key = static_cast<const char*>(a_.pages.data) + walk.next() * bytes;
  }

  void load_key(const char* key, float* to) const {
    if (a_.pages.dtype == DType::kBF16)
      load_key(reinterpret_cast<const bf16*>(key), to);
    else
      load_key(reinterpret_cast<const float*>(key), to);
  }

  static float* at(float* key, int64_t d) { return key + d / kBlockDims * kTilePools * kBlockDims + d % kBlockDims; }

  void load_key(const bf16* key, float* to) const {
    for (int d = 0; d < a_.dim; d += 2 * Lanes::kCount) {
      V even, odd;
      if (d + 2 * Lanes::kCount <= a_.dim)
        Lanes::split(key + d, even, odd);
      else
        Lanes::split(key + d, a_.dim - d, even, odd);
      Lanes::store(at(to, d), even), Lanes::store(at(to, d) + Lanes::kCount, odd);
    }
  }
  void load_key(const float* key, float* to) const {
    for (int d = 0; d < a_.dim; d += Lanes::kCount) {
      if (d + Lanes::kCount <= a_.dim)
        Lanes::store(at(to, d), Lanes::load(key + d));
      else
        Lanes::store(at(to, d), Lanes::load(key + d, a_.dim - d));
    }
  }

  // sum[c][k] = q[c]·key[k], heads by lane, for kColumns packed queries of one group each.
  template <int kColumns, int kPools>
  void dots(const float* const (&q)[kColumns], const float* tile, V (&sum)[kColumns][kPools], const Keys& next) const {
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 24
      for (int k = 0; k < kPools; ++k) sum[c][k] = Lanes::zero();
    for (int64_t block = 0, d = 0; d < padded_; ++block) {
      const float* keys = tile + block * kTilePools * kBlockDims;
      const int64_t end = std::min<int64_t>(padded_, d + kBlockDims);
      for (; d < end; ++d, ++keys) {
        next.prefetch(d);
        V column[kColumns];
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c) column[c] = Lanes::load(q[c] + d * Lanes::kCount);
#pragma GCC unroll 24
        for (int k = 0; k < kPools; ++k) {
          const V key = Lanes::set(keys[k * kBlockDims]);
#pragma GCC unroll 2
          for (int c = 0; c < kColumns; ++c) sum[c][k] = Lanes::fma(column[c], key, sum[c][k]);
        }
      }
    }
  }

  // w·relu(sum); max keeps a NaN that stands second.
  static V weighted(V weight, V sum) { return weight * Lanes::max(Lanes::zero(), sum); }

  const float* weights_of(const float* packed) const { return packed + groups_ * padded_ * Lanes::kCount; }

  void two_rows(const float* packed, const float* tile, int count, float* scores, int64_t stride,
                const Keys& next) const {
    const float* q[2] = {packed, packed + query_floats()};
    V sum[2][kTilePools / 2];
    dots(q, tile, sum, next);
    for (int c = 0; c < 2; ++c) {
      const V weight = Lanes::load(weights_of(q[c]));
      for (int k = 0; k < count; ++k) scores[c * stride + k] = Lanes::sum(weighted(weight, sum[c][k]));
    }
  }

  void one_row(const float* packed, const float* tile, int count, float* scores, const Keys& next) const {
    V total[kTilePools];
    for (int g = 0; g < groups_; ++g) {
      const float* q[1] = {packed + g * padded_ * Lanes::kCount};
      V sum[1][kTilePools];
      dots(q, tile, sum, next);
      const V weight = Lanes::load(weights_of(packed) + g * Lanes::kCount);
      for (int k = 0; k < count; ++k)
        total[k] = g ? total[k] + weighted(weight, sum[0][k]) : weighted(weight, sum[0][k]);
    }
    for (int k = 0; k < count; ++k) scores[k] = Lanes::sum(total[k]);
  }

  const IndexSelectArgs& a_;
  const PagedPools pools_;
  const int groups_;
  const int64_t step_, padded_;
};

}  // namespace
}  // namespace lathe
