#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "ops/sparse_mla/form.h"
#include "ops/sparse_mla/latents.h"

// Absorbed form: q~ of all heads, attention over the row's own latents with all heads together, then Wv. P: dtype of
// the pages, W: of kv_b.
//
// A row's set is cut into pieces of kPieceTokens, whatever its length. Each gives a maximum, a sum and z of every head;
// they are merged in order. Few rows: pieces are tasks. Many rows: a row is a task. The same sums either way.

namespace lathe {
namespace {

template <class P, class W>
class Absorbed {
 public:
  Absorbed(OpContext& ctx, const SparseMlaArgs& args, std::span<const AttendingRow> rows)
      : ctx_(ctx),
        a_(args),
        rows_(rows),
        heads_(padded_heads(args.heads)),
        latent_(round_up(args.latent_dim, kStep)),
        threads_(ctx.pool->threads()),
        scale_(1 / std::sqrt(static_cast<float>(args.qk))) {}

  void run() {
    const int64_t wave = std::max<int64_t>(1, kAbsorbedFloats / (2 * heads_ * latent_));
    for (size_t first = 0; first < rows_.size(); first += wave)
      run_wave(rows_.subspan(first, std::min<size_t>(wave, rows_.size() - first)));
  }

 private:
  // The state of a softmax over a part of a set.
  struct Part {
    float *z, *top, *sum;  // [heads][latent], [heads], [heads]
  };

  // Scores lie as [token][heads]: a vector of them holds whole tokens, or a token whole vectors.
  static int64_t padded_heads(int64_t heads) {
    if (heads >= Lanes::kCount) return round_up(heads, Lanes::kCount);
    int64_t padded = 4;
    while (padded < heads) padded *= 2;
    return padded;
  }

  int64_t part_floats() const { return heads_ * latent_ + 2 * heads_; }
  Part part(float* parts, int64_t i) const {
    float* z = parts + i * part_floats();
    return {z, z + heads_ * latent_, z + heads_ * latent_ + heads_};
  }
  static int64_t pieces(const AttendingRow& r) { return (r.count + kPieceTokens - 1) / kPieceTokens; }

  void run_wave(std::span<const AttendingRow> rows) {
    ArenaScope scope(*ctx_.scratch);
    const int64_t count = static_cast<int64_t>(rows.size());
    float* queries = ctx_.scratch->take<float>(count * heads_ * latent_);
    find_queries(rows, queries);

    const bool split = count < 4 * threads_;
    // Parts of a row follow each other; the first becomes the whole.
    int64_t* first_part = ctx_.scratch->take<int64_t>(count + 1);
    first_part[0] = 0;
    for (int64_t r = 0; r < count; ++r) first_part[r + 1] = first_part[r] + (split ? pieces(rows[r]) : 1);
    float* parts = ctx_.scratch->take<float>(first_part[count] * part_floats());
    float* scores = ctx_.scratch->take<float>(threads_ * score_floats());
    float* spare = ctx_.scratch->take<float>(threads_ * part_floats());
    ctx_.pool->run(first_part[count], [&](int64_t task, int worker) {
      float* room = scores + worker * score_floats();
      const int64_t r = std::upper_bound(first_part, first_part + count + 1, task) - first_part - 1;
      const Packed q = packed(queries, r);
      if (split) return attend(rows[r], task - first_part[r], q, room, part(parts, task));
      attend(rows[r], 0, q, room, part(parts, task));
      for (int64_t p = 1; p < pieces(rows[r]); ++p) {
        attend(rows[r], p, q, room, part(spare, worker));
        for (int h = 0; h < a_.heads; ++h) merge(part(parts, task), part(spare, worker), h);
      }
    });
    write_heads(rows, parts, first_part);
  }

  Packed packed(float* queries, int64_t r) const { return {queries + r * heads_ * latent_, heads_, latent_}; }

  // q~ of all rows: of each its heads, scaled, packed for the pages.
  void find_queries(std::span<const AttendingRow> rows, float* queries) {
    ArenaScope scope(*ctx_.scratch);
    const int64_t count = static_cast<int64_t>(rows.size()), chunks = (count + kWeightRows - 1) / kWeightRows;
    const int64_t size = kWeightRows * (a_.qk + latent_);
    float* room = ctx_.scratch->take<float>(threads_ * size);
    if (heads_ > a_.heads) std::fill_n(queries, count * heads_ * latent_, 0.0f);
    ctx_.pool->run(a_.heads * chunks, [&](int64_t task, int worker) {
      const int64_t h = task % a_.heads, first = task / a_.heads * kWeightRows,
                    n = std::min(kWeightRows, count - first);
      float *q = room + worker * size, *mixed = q + kWeightRows * a_.qk;
      for (int64_t r = 0; r < n; ++r) widen_row(a_.query, rows[first + r].row, h * a_.qk, a_.qk, q + r * a_.qk);
      const Strided<W> keys{head_weight(h), a_.kv_b.stride};
      mix<W>({q, a_.qk, 1}, n, a_.qk, keys, a_.latent_dim, mixed, latent_, nullptr);
      for (int64_t r = 0; r < n; ++r)
        pack<P>(mixed + r * latent_, a_.latent_dim, scale_, packed(queries, first + r), h);
    });
  }

  const W* head_weight(int64_t h) const { return static_cast<const W*>(a_.kv_b.at(h * (a_.qk + a_.v))); }

  int64_t score_floats() const { return kPieceTokens * heads_ + Lanes::kCount; }

  // Piece p of a row's set.
  void attend(const AttendingRow& r, int64_t p, const Packed& q, float* scores, Part out) const {
    constexpr int kAhead = 6;
    const int32_t* set = a_.selected.data + r.row * a_.selected_width + p * kPieceTokens;
    const int count = static_cast<int>(std::min<int64_t>(kPieceTokens, r.count - p * kPieceTokens));
    const P* tokens[kPieceTokens + kAhead];
    LatentWalk<const P> walk(a_, r.sequence);
    for (int j = 0; j < count; ++j) tokens[j] = walk.at(set[j]);
    for (int j = 0; j < kAhead; ++j) tokens[count + j] = tokens[count - 1];
    dot(q, count, tokens, a_.latent_dim, kAhead, {scores, 1, heads_});
    softmax(scores, count, out);
    mix<P>({scores, 1, heads_}, a_.heads, count, Listed<P>{tokens}, a_.latent_dim, out.z, latent_, nullptr);
  }

  // scores [count][heads] to exp(score - top), and top and sum of each head.
  void softmax(float* scores, int count, Part out) const {
    using V = Lanes::V;
    const int64_t vectors = (count * heads_ + Lanes::kCount - 1) / Lanes::kCount,
                  period = std::max<int64_t>(1, heads_ / Lanes::kCount);
    std::fill(scores + count * heads_, scores + vectors * Lanes::kCount, -std::numeric_limits<float>::infinity());
    const int tokens = static_cast<int>(std::max<int64_t>(1, Lanes::kCount / heads_)),
              heads = Lanes::kCount / tokens;  // of a vector
    float lanes[Lanes::kCount];
    for (int64_t i = 0; i < period; ++i) {
      V top = Lanes::load(scores + i * Lanes::kCount);
      for (int64_t v = i + period; v < vectors; v += period)
        top = Lanes::max(top, Lanes::load(scores + v * Lanes::kCount));
      Lanes::store(lanes, top);
      for (int h = 0; h < heads; ++h)
        for (int t = 1; t < tokens; ++t) lanes[h] = std::max(lanes[h], lanes[t * heads + h]);
      for (int j = heads; j < Lanes::kCount; ++j) lanes[j] = lanes[j % heads];
      for (int h = 0; h < heads; ++h) out.top[i * Lanes::kCount + h] = lanes[h];
      top = Lanes::load(lanes);
      V sum = Lanes::zero();
      for (int64_t v = i; v < vectors; v += period) {
        const V e = Lanes::exp(Lanes::load(scores + v * Lanes::kCount) - top);
        Lanes::store(scores + v * Lanes::kCount, e);
        sum = sum + e;
      }
      Lanes::store(lanes, sum);
      for (int h = 0; h < heads; ++h)
        for (int t = 1; t < tokens; ++t) lanes[h] += lanes[t * heads + h];
      for (int h = 0; h < heads; ++h) out.sum[i * Lanes::kCount + h] = lanes[h];
    }
  }

  // `into` becomes the part of both sets, head h.
  void merge(Part into, Part part, int h) const {
    using V = Lanes::V;
    const float top = std::max(into.top[h], part.top[h]);
    float lanes[Lanes::kCount];
    Lanes::store(lanes, Lanes::exp(Lanes::set(into.top[h] - top)));
    const float old_share = lanes[0];
    Lanes::store(lanes, Lanes::exp(Lanes::set(part.top[h] - top)));
    const float new_share = lanes[0];
    const V a = Lanes::set(old_share), b = Lanes::set(new_share);
    float *z = into.z + h * latent_, *more = part.z + h * latent_;
    for (int64_t i = 0; i < a_.latent_dim; i += Lanes::kCount)
      Lanes::store(z + i, Lanes::fma(a, Lanes::load(z + i), b * Lanes::load(more + i)));
    into.sum[h] = old_share * into.sum[h] + new_share * part.sum[h];
    into.top[h] = top;
  }

  // Merges what is in several parts, then o = Wv·z.
  void write_heads(std::span<const AttendingRow> rows, float* parts, const int64_t* first_part) {
    ArenaScope scope(*ctx_.scratch);
    const int64_t count = static_cast<int64_t>(rows.size()), chunks = (count + kWeightRows - 1) / kWeightRows;
    const int64_t size = kWeightRows * (latent_ + a_.v);
    float* room = ctx_.scratch->take<float>(threads_ * size);
    constexpr int kAhead = 8;
    const W** weights = ctx_.scratch->take<const W*>(threads_ * (a_.v + kAhead));
    ctx_.pool->run(a_.heads * chunks, [&](int64_t task, int worker) {
      const int64_t h = task % a_.heads, first = task / a_.heads * kWeightRows,
                    n = std::min(kWeightRows, count - first);
      const Packed z{room + worker * size, n, latent_};
      float* o = z.data + kWeightRows * latent_;
      for (int64_t r = 0; r < n; ++r) {
        const int64_t begin = first_part[first + r], end = first_part[first + r + 1];
        const Part whole = part(parts, begin);
        for (int64_t p = begin + 1; p < end; ++p) merge(whole, part(parts, p), static_cast<int>(h));
        pack<W>(whole.z + h * latent_, a_.latent_dim, 1 / whole.sum[h], z, r);
      }
      const W** values = weights + worker * (a_.v + kAhead);
      for (int64_t i = 0; i < a_.v + kAhead; ++i)
        values[i] = head_weight(h) + (a_.qk + std::min<int64_t>(i, a_.v - 1)) * a_.kv_b.stride;
      dot(z, a_.v, values, a_.latent_dim, kAhead, {o, a_.v, 1});
      for (int64_t r = 0; r < n; ++r) store_row(a_.out, rows[first + r].row, h * a_.v, a_.v, o + r * a_.v);
    });
  }

  OpContext& ctx_;
  const SparseMlaArgs& a_;
  const std::span<const AttendingRow> rows_;
  const int64_t heads_, latent_;  // padded
  const int64_t threads_;
  const float scale_;
};

}  // namespace
}  // namespace lathe
