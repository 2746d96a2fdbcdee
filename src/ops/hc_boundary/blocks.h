#pragma once

#include <algorithm>
#include <cmath>

#include "ops/hc_boundary/block_sizes.h"
#include "ops/hc_boundary/coefficients.h"
#include "ops/hc_boundary/hc_boundary.h"

// The boundary over a file's Lanes.
//
// The mapping X'·fnᵀ is the work: 24 products of S·hidden values a row. It is cut into fixed pieces of hidden channels,
// each summed by lane, the pieces added in their order; so a row has the same bits whether its pieces were spread over
// threads (few rows: all threads share the reading of fn) or not (many rows: a block of them uses each stretch of fn
// from L1), whoever its neighbours are.

namespace lathe {
namespace {

// As many sums as leave registers for the operands: 24 of the 32 of AVX-512, 12 of 16.
constexpr int kTileRows = Lanes::kCount == 16 ? 4 : 2, kTileOutputs = 6;

class Boundary {
 public:
  Boundary(OpContext& ctx, const HcBoundaryArgs& args)
      : ctx_(ctx),
        a_(args),
        hidden_(args.u.width),
        rows_(args.u.rows),
        pieces_((hidden_ + kHcPieceChannels - 1) / kHcPieceChannels),
        padded_((hidden_ + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount),
        outputs_(static_cast<int>(args.fn.out)),
        sums_((outputs_ + 1) * Lanes::kCount) {}

  Status run() {
    if (rows_ == 0) return Status::ok();
    ArenaScope scope(*ctx_.scratch);
    const int64_t blocks = (rows_ + kHcBlockRows - 1) / kHcBlockRows;
    fn_ = a_.fn;
    if (fn_.dtype == DType::kBF16 && rows_ >= kHcBlockRows) widen_fn();
    if (blocks >= 2 * ctx_.pool->threads())
      run_blocks(blocks);
    else
      run_pieces(blocks);
    return Status::ok();
  }

 private:
  // X' of a block of rows in fp32: [rows][copies][step], padded with zeroes to whole vectors.
  struct Floats {
    float* data;
    int64_t step;
  };

  // Many rows: a task takes a block of them from the old streams to u.
  void run_blocks(int64_t blocks) {
    const int64_t threads = ctx_.pool->threads();
    // One piece more than a row needs: else all streams of all rows would lie in the same few sets of L1.
    const int64_t step = padded_ + kHcPieceChannels, size = kHcBlockRows * a_.copies * step;
    float* floats = ctx_.scratch->take<float>(threads * size);
    float* sums = ctx_.scratch->take<float>(threads * kHcBlockRows * sums_);
    float* room = ctx_.scratch->take<float>(threads * padded_);
    ctx_.pool->run(blocks, [&](int64_t block, int worker) {
      const int64_t first = block * kHcBlockRows, end = std::min(first + kHcBlockRows, rows_);
      float* mine = sums + worker * kHcBlockRows * sums_;
      auto piece = [&](int64_t p) { return Floats{floats + worker * size + p * kHcPieceChannels, step}; };
      for (int64_t row = first; row < end; ++row)  // whole rows: memory is read in order
        for (int64_t p = 0; p < pieces_; ++p)
          mix_piece(row, p, piece(p).data + (row - first) * a_.copies * step, step, mine + (row - first) * sums_,
                    p > 0);
      for (int64_t p = 0; p < pieces_; ++p) map_piece(static_cast<int>(end - first), p, piece(p), mine, sums_, p > 0);
      finish(first, end, mine, sums_, room + worker * padded_);
    });
  }

  // Few rows: their pieces are tasks, so that all threads share the reading of fn.
  void run_pieces(int64_t blocks) {
    const int64_t threads = ctx_.pool->threads();
    const int64_t step = std::min(padded_, kHcPieceChannels), size = kHcBlockRows * a_.copies * step,
                  stride = pieces_ * sums_;
    float* floats = ctx_.scratch->take<float>(threads * size);
    float* sums = ctx_.scratch->take<float>(rows_ * stride);
    float* room = ctx_.scratch->take<float>(threads * padded_);
    ctx_.pool->run(blocks * pieces_, [&](int64_t task, int worker) {
      const int64_t first = task / pieces_ * kHcBlockRows, end = std::min(first + kHcBlockRows, rows_),
                    p = task % pieces_;
      const Floats mine{floats + worker * size, step};
      float* to = sums + first * stride + p * sums_;
      for (int64_t row = first; row < end; ++row)
        mix_piece(row, p, mine.data + (row - first) * a_.copies * step, step, to + (row - first) * stride, false);
      map_piece(static_cast<int>(end - first), p, mine, to, stride, false);
    });
    constexpr int64_t kFinishRows = 4;
    ctx_.pool->run((rows_ + kFinishRows - 1) / kFinishRows, [&](int64_t task, int worker) {
      const int64_t first = task * kFinishRows, end = std::min(first + kFinishRows, rows_);
      for (int64_t row = first; row < end; ++row)
        for (int64_t p = 1; p < pieces_; ++p) add(sums + row * stride + p * sums_, sums + row * stride);
      finish(first, end, sums + first * stride, stride, room + worker * padded_);
    });
  }

  void widen_fn() {
    float* wide = ctx_.scratch->take<float>(fn_.out * fn_.in);
    ctx_.pool->run(fn_.out, [&](int64_t o, int) {
      const bf16* from = static_cast<const bf16*>(a_.fn.at(o));
      for (int64_t i = 0; i < fn_.in; ++i) wide[o * fn_.in + i] = to_float(from[i]);
    });
    fn_.data = wide, fn_.dtype = DType::kF32, fn_.stride = fn_.in;
  }

  void add(const float* from, float* to) const {
    for (int64_t i = 0; i < sums_; i += Lanes::kCount)
      Lanes::store(to + i, Lanes::load(to + i) + Lanes::load(from + i));
  }

  int64_t begin_of(int64_t p) const { return p * kHcPieceChannels; }
  int64_t end_of(int64_t p) const { return std::min((p + 1) * kHcPieceChannels, hidden_); }

  // New streams of piece p of a row. The lane sums of their squares go behind the row's outputs in `sums`, are added
  // there if `more`.
  void mix_piece(int64_t row, int64_t p, float* floats, int64_t step, float* sums, bool more) const {
    const float *post = nullptr, *comb = nullptr;
    if (!a_.y.empty()) post = a_.post.data + row * a_.copies, comb = a_.comb.data + row * a_.copies * a_.copies;
    const Lanes::V sum =
        mix_row(a_.copies, a_.streams, a_.y, a_.streams_out, row, begin_of(p), end_of(p), post, comb, floats, step);
    float* square = sums + outputs_ * Lanes::kCount;
    Lanes::store(square, more ? Lanes::load(square) + sum : sum);
  }

  // The mapping's lane sums over piece p of a block of rows, `stride` from row to row.
  void map_piece(int rows, int64_t p, Floats x, float* sums, int64_t stride, bool more) const {
    if (fn_.dtype == DType::kBF16)
      map_rows<bf16>(rows, begin_of(p), end_of(p), x, sums, stride, more);
    else
      map_rows<float>(rows, begin_of(p), end_of(p), x, sums, stride, more);
  }

  template <class F>
  void map_rows(int rows, int64_t begin, int64_t stop, Floats x, float* sums, int64_t stride, bool more) const {
    int o = 0;
    for (; o + kTileOutputs <= outputs_; o += kTileOutputs)
      map_outputs<F, kTileOutputs>(o, rows, begin, stop, x, sums, stride, more);
    for (; o < outputs_; ++o) map_outputs<F, 1>(o, rows, begin, stop, x, sums, stride, more);
  }

  template <class F, int kOutputs>
  void map_outputs(int o, int rows, int64_t begin, int64_t stop, Floats x, float* sums, int64_t stride,
                   bool more) const {
    int r = 0;
    auto tile = [&]<int kRows>() {
      map_tile<F, kRows, kOutputs>(o, begin, stop, {x.data + r * a_.copies * x.step, x.step}, sums + r * stride, stride,
                                   more);
      r += kRows;
    };
    while (r + kTileRows <= rows) tile.template operator()<kTileRows>();
    while (r < rows) tile.template operator()<1>();
  }

  // sums[r][o + k] (+)= X'[r]·fn[o + k] over the piece, by lane.
  template <class F, int kRows, int kOutputs>
  void map_tile(int o, int64_t begin, int64_t stop, Floats x, float* sums, int64_t stride, bool more) const {
    using V = Lanes::V;
    V sum[kRows][kOutputs];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int k = 0; k < kOutputs; ++k) sum[r][k] = Lanes::zero();
    for (int s = 0; s < a_.copies; ++s) {
      const F* fn = static_cast<const F*>(fn_.data) + o * fn_.stride + s * hidden_ + begin;
      const float* stream = x.data + s * x.step;
      const int64_t count = stop - begin, whole = count / Lanes::kCount * Lanes::kCount;
      auto step = [&](int64_t i, auto load) {
        V row[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) row[r] = Lanes::load(stream + r * a_.copies * x.step + i);
#pragma GCC unroll 8
        for (int k = 0; k < kOutputs; ++k) {
          if (kRows == 1 && i * sizeof(F) % 64 == 0) __builtin_prefetch(fn + (k + kOutputs) * fn_.stride + i);
          const V f = load(fn + k * fn_.stride + i);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) sum[r][k] = Lanes::fma(f, row[r], sum[r][k]);
        }
      };
      for (int64_t i = 0; i < whole; i += Lanes::kCount) step(i, [](const F* p) { return Lanes::load(p); });
      if (whole < count) step(whole, [&](const F* p) { return Lanes::load(p, static_cast<int>(count - whole)); });
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int k = 0; k < kOutputs; ++k) {
        float* to = sums + r * stride + (o + k) * Lanes::kCount;
        Lanes::store(to, more ? Lanes::load(to) + sum[r][k] : sum[r][k]);
      }
  }

  // From the sums of rows [first, end) to post, comb and u.
  void finish(int64_t first, int64_t end, const float* sums, int64_t stride, float* room) const {
    constexpr int kCount = Lanes::kCount, kMost = 2 * kMaxCopies + kMaxCopies * kMaxCopies;
    const int S = a_.copies;
    float m[kMost * kCount], pre[kMaxCopies * kCount], post[kMaxCopies * kCount],
        comb[kMaxCopies * kMaxCopies * kCount];
    for (int64_t group = first; group < end; group += kCount) {
      const int lanes = static_cast<int>(std::min<int64_t>(kCount, end - group));
      for (int lane = 0; lane < kCount; ++lane) {
        const float* row = sums + (group - first + (lane < lanes ? lane : 0)) * stride;
        const float r =
            1 /
            std::sqrt(Lanes::sum(Lanes::load(row + outputs_ * kCount)) / static_cast<float>(S * hidden_) + a_.norm_eps);
        for (int o = 0; o < outputs_; ++o) m[o * kCount + lane] = Lanes::sum(Lanes::load(row + o * kCount)) * r;
      }
      Coefficients c;
      coefficients(m, S, a_.scale.data, a_.base.data, a_.sinkhorn_iters, a_.hc_eps, c);
      for (int s = 0; s < S; ++s) Lanes::store(pre + s * kCount, c.pre[s]), Lanes::store(post + s * kCount, c.post[s]);
      for (int i = 0; i < S * S; ++i) Lanes::store(comb + i * kCount, c.comb[i]);
      for (int lane = 0; lane < lanes; ++lane) {
        const int64_t row = group + lane;
        float share[kMaxCopies];
        for (int s = 0; s < S; ++s)
          share[s] = pre[s * kCount + lane], a_.post_out[row * S + s] = post[s * kCount + lane];
        for (int i = 0; i < S * S; ++i) a_.comb_out[row * S * S + i] = comb[i * kCount + lane];
        collapse_row(S, a_.streams_out, share, a_.norm_weight.data, a_.norm_eps, room, a_.u, row);
      }
    }
  }

  OpContext& ctx_;
  const HcBoundaryArgs& a_;
  const int64_t hidden_, rows_, pieces_, padded_;
  const int outputs_;
  const int64_t sums_;  // floats of a row's lane sums: outputs, then the squares
  Weight fn_;
};

}  // namespace
}  // namespace lathe
