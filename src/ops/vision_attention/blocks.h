#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/vision_attention/head_rotation.h"

// The blocked algorithm over a file's Lanes (ops/lanes_*.h, which it includes first).
//
// A unit of work is one head of one segment. Its keys are normed, rotated and packed once, [panel][step][key of panel],
// its values as [step][channel]. A step is what a product instruction takes in depth: one float, or a pair of bf16.
// Then a task takes kQueryBlock queries of a unit over blocks of kKeyBlock keys, which stay in L1 while the queries
// pass over them, with a running maximum and sum a row. Keys are cut from the segment's start and queries don't see
// each other: a row's bits depend on its own segment alone.

namespace lathe {
namespace {

// Packed at a time, so that scratch doesn't grow with the number of segments; a single unit may be larger.
constexpr int64_t kWaveBytes = 16 << 20;
constexpr int64_t kPackTaskKeys = 256;
constexpr int kMaxCoordinate = 65535;

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// A machine whose steps are floats. Others bring the same members.
template <int kRowsOfTile, int kVectorsOfTile>
struct FloatSteps {
  using Step = float;
  using StepVector = Lanes::V;
  static constexpr int kDepth = 1;                                      // values a step
  static constexpr int kRows = kRowsOfTile, kVectors = kVectorsOfTile;  // accumulators of a tile of products

  static StepVector load_steps(const Step* p) { return Lanes::load(p); }
  static StepVector broadcast(Step x) { return Lanes::set(x); }
  static Lanes::V dot(Lanes::V sum, StepVector a, StepVector b) { return Lanes::fma(a, b, sum); }
  // kDepth values, `distance` apart.
  static Step step(const float* x, int64_t /*distance*/) { return *x; }
  // kCount values in a row, to as many steps as they are.
  static void store_steps(Step* p, Lanes::V v) { Lanes::store(p, v); }
};

// c[kRows][kVectors vectors] = a[kRows][steps]·b[steps][kVectors vectors], plus c·keep[row] if kKeep.
template <class Machine, int kVectors, bool kKeep>
void multiply(const typename Machine::Step* a, int64_t a_stride, const typename Machine::Step* b, int64_t b_stride,
              int64_t steps, float* c, int64_t c_stride, const float* keep) {
  constexpr int kRows = Machine::kRows, kLanes = Lanes::kCount;
  Lanes::V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = kKeep ? Lanes::load(c + r * c_stride + v * kLanes) * Lanes::set(keep[r]) : Lanes::zero();
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
    for (int v = 0; v < kVectors; ++v) Lanes::store(c + r * c_stride + v * kLanes, sum[r][v]);
}

template <class Machine>
class Attention {
 public:
  Attention(OpContext& ctx, const VisionAttentionArgs& args, int largest_coordinate)
      : ctx_(ctx),
        args_(args),
        angles_(args, largest_coordinate),
        channels_(round_up(args.dim, kLanes)),
        steps_(channels_ / kDepth),
        q_norm_(padded_weight(args.q_norm, channels_)),
        k_norm_(padded_weight(args.k_norm, channels_)),
        spaces_(ctx.pool->threads(), Space(steps_, channels_)) {}

  void run() {
    const int64_t units = (args_.segment_start.count - 1) * args_.heads;
    for (int64_t unit = 0; unit < units;) unit = wave(unit, units);
  }

 private:
  using Step = typename Machine::Step;
  static constexpr int kDepth = Machine::kDepth, kLanes = Lanes::kCount, kRows = Machine::kRows;
  static constexpr int kPanel = kLanes * Machine::kVectors;  // keys
  static constexpr int kKeyBlock = 64 * kDepth;              // of 64 channels: 16 KB of keys, as much of values
  static constexpr int kQueryBlock = 16 * kRows;
  static_assert(kKeyBlock % kPanel == 0 && kPackTaskKeys % kPanel == 0 && kPanel % kDepth == 0);

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
          total(kQueryBlock * kLanes),
          scores(kRows * kKeyBlock),
          weights(kRows * kKeyBlock / kDepth),
          heads(kPanel * channels) {}
    std::vector<Step> queries;  // [kQueryBlock, steps]
    std::vector<float> out;     // [kQueryBlock, channels]
    std::vector<float> top;     // [kQueryBlock]: the greatest score so far
    std::vector<float> total;   // [kQueryBlock, kLanes]: the sum of weights so far, by lane
    std::vector<float> scores;  // [kRows, kKeyBlock]
    std::vector<Step> weights;  // exp(score - top), as the second product wants them
    std::vector<float> heads;   // [kPanel, channels]
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
      pack_tasks += (patches + kPackTaskKeys - 1) / kPackTaskKeys;
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
      pack(u, (task - u.first_pack_task) * kPackTaskKeys, spaces_[worker]);
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

  // part 0: q, 1: k, 2: v. Zeroes from D up to `channels`.
  void read_head(const Unit& u, int64_t patch, int part, float* x) const {
    const int64_t column = (int64_t{part} * args_.heads + u.head) * args_.dim;
    const int64_t at = (u.first_patch + patch) * args_.qkv.stride + column;
    if (args_.qkv.dtype == DType::kF32)
      read_values(static_cast<const float*>(args_.qkv.data) + at, x);
    else
      read_values(static_cast<const bf16*>(args_.qkv.data) + at, x);
  }

  // A head's rows lie pages apart, where no hardware prefetcher follows: ask for the one four patches on.
  template <class T>
  void read_values(const T* from, float* to) const {
    for (int line = 0; line < args_.dim; line += 64 / static_cast<int>(sizeof(T)))
      __builtin_prefetch(from + 4 * args_.qkv.stride + line);
    int i = 0;
    for (; i + kLanes <= args_.dim; i += kLanes) Lanes::store(to + i, Lanes::load(from + i));
    if (i < args_.dim) Lanes::store(to + i, Lanes::load(from + i, args_.dim - i));
  }

  void write_head(const Unit& u, int64_t patch, const float* x) const {
    const int64_t at = (u.first_patch + patch) * args_.out.stride + int64_t{u.head} * args_.dim;
    if (args_.out.dtype == DType::kF32)
      write_values(x, static_cast<float*>(args_.out.data) + at);
    else
      write_values(x, static_cast<bf16*>(args_.out.data) + at);
  }

  template <class T>
  void write_values(const float* from, T* to) const {
    int i = 0;
    for (; i + kLanes <= args_.dim; i += kLanes) Lanes::store(to + i, Lanes::load(from + i));
    if (i < args_.dim) Lanes::store(to + i, Lanes::load(from + i), args_.dim - i);
  }

  // Keys [first, first + kPackTaskKeys) of a unit and their values; zeroes behind its end, up to a whole panel.
  void pack(const Unit& u, int64_t first, Space& space) const {
    const int64_t end = std::min(first + kPackTaskKeys, round_up(u.patches, kPanel));
    float* heads = space.heads.data();
    for (int64_t panel = first; panel < end; panel += kPanel) {
      const int64_t count = std::min<int64_t>(kPanel, u.patches - panel);
      std::fill(heads + count * channels_, heads + kPanel * channels_, 0.0f);
      for (int64_t k = 0; k < count; ++k) {
        read_head(u, panel + k, 1, heads + k * channels_);
        norm_and_rotate(args_, angles_, u.first_patch + panel + k, k_norm_.data(), heads + k * channels_);
      }
      Step* keys = u.keys + panel * steps_;
      for (int64_t s = 0; s < steps_; ++s)
        for (int64_t k = 0; k < kPanel; ++k)
          keys[s * kPanel + k] = Machine::step(heads + k * channels_ + s * kDepth, 1);
      for (int64_t k = 0; k < count; ++k) read_head(u, panel + k, 2, heads + k * channels_);
      Step* values = u.values + panel / kDepth * channels_;
      for (int64_t s = 0; s < kPanel / kDepth; ++s)
        for (int64_t c = 0; c < channels_; ++c)
          values[s * channels_ + c] = Machine::step(heads + s * kDepth * channels_ + c, channels_);
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
      const Lanes::V total = Lanes::set(Lanes::sum(Lanes::load(&space.total[r * kLanes])));
      for (int64_t c = 0; c < channels_; c += kLanes) Lanes::store(out + c, Lanes::load(out + c) / total);
      write_head(u, first + r, out);
    }
  }

  void load_queries(const Unit& u, int64_t first, int64_t rows, Space& space) const {
    float* x = space.heads.data();
    for (int64_t r = 0; r < rows; ++r) {
      read_head(u, first + r, 0, x);
      norm_and_rotate(args_, angles_, u.first_patch + first + r, q_norm_.data(), x);
      for (int64_t c = 0; c < channels_; c += kLanes)
        Machine::store_steps(&space.queries[r * steps_ + c / kDepth], Lanes::load(x + c));
    }
    // Rows that only fill up the last tile.
    std::fill(space.queries.begin() + rows * steps_, space.queries.end(), Step{});
  }

  // kRows queries from `row` on against `keys` keys from `key` on.
  void attend_block(const Unit& u, int64_t key, int64_t keys, int64_t row, Space& space) const {
    for (int64_t k = 0; k < keys; k += kPanel)
      multiply<Machine, Machine::kVectors, false>(&space.queries[row * steps_], steps_, u.keys + (key + k) * steps_,
                                                  kPanel, steps_, &space.scores[k], kKeyBlock, nullptr);
    const int64_t beyond = std::min(keys, u.patches - key);
    if (beyond < keys)
      for (int r = 0; r < kRows; ++r)
        std::fill_n(&space.scores[r * kKeyBlock + beyond], keys - beyond, -std::numeric_limits<float>::infinity());
    float keep[kLanes];
    soften(row, static_cast<int>(keys), keep, space);
    const Step* values = u.values + key / kDepth * channels_;
    for (int64_t c = 0; c < channels_; c += kPanel)
      add_values<Machine::kVectors>(values + c, keys / kDepth, (channels_ - c) / kLanes,
                                    &space.out[row * channels_ + c], keep, space);
  }

  // Scores of kRows rows to weights. keep[r] is what a greater maximum leaves of what a row has gathered so far.
  void soften(int64_t row, int keys, float* keep, Space& space) const {
    static_assert(kRows <= kLanes);
    const float scale = 1 / std::sqrt(static_cast<float>(args_.dim));
    float top[kLanes] = {}, less[kLanes] = {};
    for (int r = 0; r < kRows; ++r) {
      const float* scores = &space.scores[r * kKeyBlock];
      Lanes::V greatest = Lanes::load(scores);
      for (int k = kLanes; k < keys; k += kLanes) greatest = Lanes::max(Lanes::load(scores + k), greatest);
      top[r] = std::max(space.top[row + r], Lanes::largest(greatest) * scale);
      less[r] = space.top[row + r] - top[r];
      space.top[row + r] = top[r];
    }
    Lanes::store(keep, Lanes::exp(Lanes::load(less)));  // all rows at once: one chain of latencies, no branch
    for (int r = 0; r < kRows; ++r) {
      const float* scores = &space.scores[r * kKeyBlock];
      Step* weights = &space.weights[r * (kKeyBlock / kDepth)];
      float* total = &space.total[(row + r) * kLanes];
      Lanes::V sum = Lanes::load(total) * Lanes::set(keep[r]);
      for (int k = 0; k < keys; k += kLanes) {
        const Lanes::V weight = Lanes::exp(Lanes::fma(Lanes::load(scores + k), Lanes::set(scale), Lanes::set(-top[r])));
        sum = sum + weight;
        Machine::store_steps(weights + k / kDepth, weight);
      }
      Lanes::store(total, sum);
    }
  }

  // At most kVectors vectors of channels, as many as are left.
  template <int kVectors>
  void add_values(const Step* values, int64_t steps, int64_t vectors_left, float* out, const float* keep,
                  const Space& space) const {
    if constexpr (kVectors > 1)
      if (vectors_left < kVectors) return add_values<kVectors - 1>(values, steps, vectors_left, out, keep, space);
    multiply<Machine, kVectors, true>(space.weights.data(), kKeyBlock / kDepth, values, channels_, steps, out,
                                      channels_, keep);
  }

  OpContext& ctx_;
  const VisionAttentionArgs& args_;
  AngleTable angles_;
  int64_t channels_, steps_;  // of a head, filled up to whole vectors
  std::vector<float> q_norm_, k_norm_;
  std::vector<Space> spaces_;
};

template <class Machine>
Status attend_on(OpContext& ctx, const VisionAttentionArgs& args) {
  // What the algorithm reads as positions must be positions.
  int largest = 0;
  for (int64_t p = 0; p < args.qkv.rows; ++p) {
    const int row = args.row[p], col = args.col[p];
    if (row < 0 || col < 0 || row > kMaxCoordinate || col > kMaxCoordinate)
      return invalid("patch {} is at ({}, {}); 0 to {} is possible", p, row, col, kMaxCoordinate);
    largest = std::max({largest, row, col});
  }
  const Array<const int32_t>& start = args.segment_start;
  for (int64_t s = 0; s + 1 < start.count; ++s)
    if (start[s] > start[s + 1]) return invalid("segment {} runs from {} to {}", s, start[s], start[s + 1]);
  if (start[0] != 0 || start[start.count - 1] != args.qkv.rows)
    return invalid("segments cover patches {} to {} of {}", start[0], start[start.count - 1], args.qkv.rows);
  Attention<Machine>(ctx, args, largest).run();
  return Status::ok();
}

}  // namespace
}  // namespace lathe
