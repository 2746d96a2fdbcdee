#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/row_floats.h"
#include "ops/vision_attention/head_rotation.h"

// The blocked algorithm, compiled once a file for the vector unit that file stands for; in an anonymous namespace, so
// that no two files share an instantiation.
//
// A unit of work is one head of one segment. Its keys are normed, rotated and packed once, [panel][step][key of panel],
// its values as [step][channel]. A step is what a product instruction takes in depth: one float, or a pair of bf16.
// Then a task takes kQueryBlock queries of a unit over blocks of kKeyBlock keys, with a running maximum and sum a row.
// Keys are cut from the segment's start and queries don't see each other: a row's bits depend on its own segment alone.
//
// Machine brings: Step, kDepth (values a step), kLanes, kRows x kVectors accumulators, Vector and StepVector, load,
// store, load_steps, broadcast, dot(sum, a, b) and step(first, second).

namespace lathe {
namespace {

// f32 keys and values of 64 channels: 128 KB a block, which stays in L2 while a task's queries pass over it.
constexpr int kKeyBlock = 256;
// Packed at a time, so that scratch doesn't grow with the number of segments; a single unit may be larger.
constexpr int64_t kWaveBytes = 16 << 20;
constexpr int kMaxCoordinate = 65535;
constexpr int kSumLanes = 16;

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// x = exp(x), to 2 units in the last place; 0 below -87, NaN stays. A plain loop: the compiler makes vectors of it.
inline void exponentials(float* x, int count) {
  for (int i = 0; i < count; ++i) {
    const float clamped = x[i] < -87.0f ? -87.0f : x[i];
    const float shifted = clamped * 1.44269504f + 12582912.0f;  // + 1.5·2^23: the integer part lands in the low bits
    const float n = shifted - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const uint32_t scale = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
    x[i] = x[i] < -87.0f ? 0.0f : p * std::bit_cast<float>(scale);
  }
}

// c[kRows][kVectors lanes] (+)= a[kRows][steps]·b[steps][lanes].
template <class Machine, int kVectors, bool kAdd>
void multiply(const typename Machine::Step* a, int64_t a_stride, const typename Machine::Step* b, int64_t b_stride,
              int64_t steps, float* c, int64_t c_stride) {
  constexpr int kRows = Machine::kRows, kLanes = Machine::kLanes;
  typename Machine::Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = kAdd ? Machine::load(c + r * c_stride + v * kLanes) : typename Machine::Vector{};
  for (int64_t k = 0; k < steps; ++k) {
    typename Machine::StepVector column[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) column[v] = Machine::load_steps(b + k * b_stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = Machine::broadcast(a[r * a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Machine::dot(sum[r][v], row, column[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Machine::store(c + r * c_stride + v * kLanes, sum[r][v]);
}

template <class Machine>
class Attention {
 public:
  Attention(OpContext& ctx, const VisionAttentionArgs& args, int largest_coordinate)
      : ctx_(ctx),
        args_(args),
        angles_(args, largest_coordinate),
        steps_(round_up(args.dim, kDepth) / kDepth),
        channels_(round_up(args.dim, kLanes)),
        spaces_(ctx.pool->threads(), Space(steps_, channels_)) {}

  void run() {
    const int64_t units = (args_.segment_start.count - 1) * args_.heads;
    for (int64_t unit = 0; unit < units;) unit = wave(unit, units);
  }

 private:
  using Step = typename Machine::Step;
  static constexpr int kDepth = Machine::kDepth, kLanes = Machine::kLanes, kRows = Machine::kRows;
  static constexpr int kPanel = kLanes * Machine::kVectors;  // keys
  static constexpr int kQueryBlock = 16 * kRows;
  static_assert(kKeyBlock % kPanel == 0 && kPanel % kDepth == 0 && kPanel % kSumLanes == 0);

  struct Unit {
    int64_t first_patch, patches;
    int head;
    int64_t first_pack_task, first_query_task;
    Step *keys, *values;
  };

  // A worker's own memory.
  struct Space {
    Space(int64_t steps, int64_t channels)
        : queries(kQueryBlock * steps),
          out(kQueryBlock * channels),
          top(kQueryBlock),
          total(kQueryBlock),
          scores(kRows * kKeyBlock),
          weights(kRows * kKeyBlock / kDepth),
          heads(kPanel * steps * kDepth) {}
    std::vector<Step> queries;      // [kQueryBlock, steps]
    std::vector<float> out;         // [kQueryBlock, channels]
    std::vector<float> top, total;  // [kQueryBlock], of the scores so far
    std::vector<float> scores;      // [kRows, kKeyBlock]
    std::vector<Step> weights;      // the same, as the second product wants it
    std::vector<float> heads;       // [kPanel, steps·kDepth]
  };

  // Packs and attends as many units as kWaveBytes hold, at least one; returns the next.
  int64_t wave(int64_t unit, int64_t units) {
    std::vector<Unit> wave;
    int64_t steps = 0, pack_tasks = 0, query_tasks = 0;
    for (; unit < units; ++unit) {
      const int64_t begin = args_.segment_start[unit / args_.heads];
      const int64_t patches = args_.segment_start[unit / args_.heads + 1] - begin;
      const int64_t more = key_steps(patches) + value_steps(patches);
      if (patches == 0) continue;
      if (steps && (steps + more) * static_cast<int64_t>(sizeof(Step)) > kWaveBytes) break;
      wave.push_back({begin, patches, static_cast<int>(unit % args_.heads), pack_tasks, query_tasks, nullptr, nullptr});
      steps += more;
      pack_tasks += (patches + kKeyBlock - 1) / kKeyBlock;
      query_tasks += (patches + kQueryBlock - 1) / kQueryBlock;
    }
    ArenaScope scope(*ctx_.scratch);
    Step* packed = ctx_.scratch->take<Step>(steps);
    for (Unit& u : wave) {
      u.keys = packed;
      u.values = packed + key_steps(u.patches);
      packed = u.values + value_steps(u.patches);
    }
    ctx_.pool->run(pack_tasks, [&](int64_t task, int worker) {
      const Unit& u = owner(wave, task, &Unit::first_pack_task);
      pack(u, (task - u.first_pack_task) * kKeyBlock, spaces_[worker]);
    });
    ctx_.pool->run(query_tasks, [&](int64_t task, int worker) {
      const Unit& u = owner(wave, task, &Unit::first_query_task);
      attend(u, (task - u.first_query_task) * kQueryBlock, spaces_[worker]);
    });
    return unit;
  }

  static const Unit& owner(const std::vector<Unit>& wave, int64_t task, int64_t Unit::* first) {
    return *(std::upper_bound(wave.begin(), wave.end(), task, [&](int64_t t, const Unit& u) { return t < u.*first; }) -
             1);
  }

  int64_t key_steps(int64_t patches) const { return round_up(patches, kPanel) * steps_; }
  int64_t value_steps(int64_t patches) const { return round_up(patches, kPanel) / kDepth * channels_; }

  // part 0: q, 1: k, 2: v
  void read_head(const Unit& u, int64_t patch, int part, float* x) const {
    const int64_t column = (int64_t{part} * args_.heads + u.head) * args_.dim;
    read_floats(args_.qkv.columns(column, args_.dim).at(u.first_patch + patch), args_.qkv.dtype, args_.dim, x);
  }

  // Keys [first, first + kKeyBlock) of a unit and their values; zeroes behind its end, up to a whole panel.
  void pack(const Unit& u, int64_t first, Space& space) const {
    const int64_t end = std::min(first + kKeyBlock, round_up(u.patches, kPanel));
    const int64_t width = steps_ * kDepth;
    float* heads = space.heads.data();
    for (int64_t panel = first; panel < end; panel += kPanel) {
      std::fill(space.heads.begin(), space.heads.end(), 0.0f);
      for (int64_t k = 0; k < kPanel && panel + k < u.patches; ++k) {
        read_head(u, panel + k, 1, heads + k * width);
        norm_and_rotate(args_, angles_, u.first_patch + panel + k, args_.k_norm.data, heads + k * width);
      }
      Step* keys = u.keys + panel * steps_;
      for (int64_t s = 0; s < steps_; ++s)
        for (int64_t k = 0; k < kPanel; ++k) keys[s * kPanel + k] = Machine::step(heads + k * width + s * kDepth, 1);
      std::fill(space.heads.begin(), space.heads.end(), 0.0f);
      for (int64_t k = 0; k < kPanel && panel + k < u.patches; ++k) read_head(u, panel + k, 2, heads + k * width);
      Step* values = u.values + panel / kDepth * channels_;
      for (int64_t s = 0; s < kPanel / kDepth; ++s)
        for (int64_t c = 0; c < channels_; ++c)
          values[s * channels_ + c] = c < width ? Machine::step(heads + s * kDepth * width + c, width) : Step{};
    }
  }

  void attend(const Unit& u, int64_t first, Space& space) const {
    const int64_t rows = std::min<int64_t>(kQueryBlock, u.patches - first);
    load_queries(u, first, rows, space);
    std::fill(space.out.begin(), space.out.end(), 0.0f);
    std::fill(space.top.begin(), space.top.end(), -std::numeric_limits<float>::infinity());
    std::fill(space.total.begin(), space.total.end(), 0.0f);
    const int64_t padded = round_up(u.patches, kPanel);
    for (int64_t key = 0; key < padded; key += kKeyBlock)
      for (int64_t r = 0; r < rows; r += kRows)
        attend_block(u, key, std::min<int64_t>(kKeyBlock, padded - key), r, space);
    for (int64_t r = 0; r < rows; ++r) {
      float* out = &space.out[r * channels_];
      for (int i = 0; i < args_.dim; ++i) out[i] /= space.total[r];
      write_row(args_.out.columns(int64_t{u.head} * args_.dim, args_.dim), u.first_patch + first + r, out);
    }
  }

  void load_queries(const Unit& u, int64_t first, int64_t rows, Space& space) const {
    std::fill(space.queries.begin(), space.queries.end(), Step{});
    std::fill(space.heads.begin(), space.heads.end(), 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      float* x = space.heads.data();
      read_head(u, first + r, 0, x);
      norm_and_rotate(args_, angles_, u.first_patch + first + r, args_.q_norm.data, x);
      for (int64_t s = 0; s < steps_; ++s) space.queries[r * steps_ + s] = Machine::step(x + s * kDepth, 1);
    }
  }

  // kRows queries from `row` on against `keys` keys from `key` on.
  void attend_block(const Unit& u, int64_t key, int64_t keys, int64_t row, Space& space) const {
    float* scores = space.scores.data();
    for (int64_t k = 0; k < keys; k += kPanel)
      multiply<Machine, Machine::kVectors, false>(&space.queries[row * steps_], steps_, u.keys + (key + k) * steps_,
                                                  kPanel, steps_, scores + k, kKeyBlock);
    const int64_t beyond = std::min(keys, u.patches - key);
    for (int r = 0; r < kRows; ++r) {
      std::fill(scores + r * kKeyBlock + beyond, scores + r * kKeyBlock + keys,
                -std::numeric_limits<float>::infinity());
      soften(row + r, scores + r * kKeyBlock, static_cast<int>(keys), space);
      for (int64_t s = 0; s < keys / kDepth; ++s)
        space.weights[r * (kKeyBlock / kDepth) + s] = Machine::step(scores + r * kKeyBlock + s * kDepth, 1);
    }
    const Step* values = u.values + key / kDepth * channels_;
    for (int64_t c = 0; c < channels_; c += kPanel)
      add_values<Machine::kVectors>(values + c, keys / kDepth, (channels_ - c) / kLanes,
                                    &space.out[row * channels_ + c], space);
  }

  // Scores of one row to weights; what the row has gathered so far is scaled to the new maximum.
  void soften(int64_t row, float* scores, int keys, Space& space) const {
    const float scale = 1 / std::sqrt(static_cast<float>(args_.dim));
    float lanes[kSumLanes];
    std::fill(lanes, lanes + kSumLanes, space.top[row]);
    for (int k = 0; k < keys; k += kSumLanes)
      for (int j = 0; j < kSumLanes; ++j) {
        scores[k + j] *= scale;
        lanes[j] = scores[k + j] > lanes[j] ? scores[k + j] : lanes[j];
      }
    const float top = *std::max_element(lanes, lanes + kSumLanes);
    for (int k = 0; k < keys; ++k) scores[k] -= top;
    exponentials(scores, keys);
    std::fill(lanes, lanes + kSumLanes, 0.0f);
    for (int k = 0; k < keys; k += kSumLanes)
      for (int j = 0; j < kSumLanes; ++j) lanes[j] += scores[k + j];
    if (top != space.top[row]) {
      float shrink = space.top[row] - top;
      exponentials(&shrink, 1);
      for (int64_t c = 0; c < channels_; ++c) space.out[row * channels_ + c] *= shrink;
      space.total[row] *= shrink;
      space.top[row] = top;
    }
    float sum = 0;
    for (float x : lanes) sum += x;
    space.total[row] += sum;
  }

  // At most kVectors vectors of channels, as many as are left.
  template <int kVectors>
  void add_values(const Step* values, int64_t steps, int64_t vectors_left, float* out, const Space& space) const {
    if constexpr (kVectors > 1)
      if (vectors_left < kVectors) return add_values<kVectors - 1>(values, steps, vectors_left, out, space);
    multiply<Machine, kVectors, true>(space.weights.data(), kKeyBlock / kDepth, values, channels_, steps, out,
                                      channels_);
  }

  OpContext& ctx_;
  const VisionAttentionArgs& args_;
  AngleTable angles_;
  int64_t steps_, channels_;  // of a head
  std::vector<Space> spaces_;
};

// What the algorithm reads as positions must be positions.
inline Status attend_all(Status (*attention)(OpContext&, const VisionAttentionArgs&, int), OpContext& ctx,
                         const VisionAttentionArgs& args) {
  int largest = 0;
  for (int64_t p = 0; p < args.qkv.rows; ++p) {
    if (std::min(args.row[p], args.col[p]) < 0 || std::max(args.row[p], args.col[p]) > kMaxCoordinate)
      return invalid("patch {} is at ({}, {}); 0 to {} is possible", p, args.row[p], args.col[p], kMaxCoordinate);
    largest = std::max({largest, args.row[p], args.col[p]});
  }
  const Array<const int32_t>& start = args.segment_start;
  for (int64_t s = 0; s + 1 < start.count; ++s)
    if (start[s] > start[s + 1]) return invalid("segment {} runs from {} to {}", s, start[s], start[s + 1]);
  if (start[0] != 0 || start[start.count - 1] != args.qkv.rows)
    return invalid("segments cover patches {} to {} of {}", start[0], start[start.count - 1], args.qkv.rows);
  return attention(ctx, args, largest);
}

template <class Machine>
Status attend_on(OpContext& ctx, const VisionAttentionArgs& args, int largest) {
  Attention<Machine>(ctx, args, largest).run();
  return Status::ok();
}

}  // namespace
}  // namespace lathe
