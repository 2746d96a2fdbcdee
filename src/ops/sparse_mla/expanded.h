#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "ops/sparse_mla/form.h"
#include "ops/sparse_mla/latents.h"

// Expanded form, for rows whose sets are prefixes of their sequence: keys and values of every head are made once, then
// blocks of rows pass over blocks of tokens. P: dtype of the pages, W: of kv_b; keys and values are fp32.
//
// Blocks of tokens begin at multiples of kKeyTokens, and a row sees no other row: its bits depend on its prefix alone.

namespace lathe {
namespace {

// What a group of products takes at once (products.h); a group stops at its own last token.
constexpr int kGroupRows = 12;

template <class P, class W>
class Expanded {
 public:
  // rows: of one sequence; row r's set is positions 0 ... rows[r].count - 1.
  Expanded(OpContext& ctx, const SparseMlaArgs& args, std::span<const AttendingRow> rows)
      : ctx_(ctx),
        a_(args),
        rows_(rows),
        latent_(round_up(args.latent_dim, kStep)),
        values_(round_up(args.v, kStep)),
        tokens_(std::max_element(rows.begin(), rows.end(), [](auto& x, auto& y) { return x.count < y.count; })->count),
        blocks_((tokens_ + kKeyTokens - 1) / kKeyTokens),
        threads_(ctx.pool->threads()) {}

  void run() {
    const int64_t head_floats = blocks_ * block_floats();
    const int64_t wave = std::clamp<int64_t>(kExpandedFloats / head_floats, 1, a_.heads);
    ArenaScope scope(*ctx_.scratch);
    float* expanded = ctx_.scratch->take<float>(wave * head_floats);
    for (int64_t h = 0; h < a_.heads; h += wave) {
      const int64_t heads = std::min(wave, a_.heads - h);
      expand(h, heads, expanded);
      attend(h, heads, expanded);
    }
  }

 private:
  static constexpr int kPanels = kKeyTokens / kStep;

  // Of a block: keys as [panel of kStep tokens][channel][token], then values as [panel of kStep
  // channels][token][channel].
  int64_t block_floats() const { return kKeyTokens * (a_.qk + values_); }
  float* block(float* expanded, int64_t head, int64_t b) const {
    return expanded + (head * blocks_ + b) * block_floats();
  }
  float* key_panel(float* block, int64_t p) const { return block + p * a_.qk * kStep; }
  float* value_panel(float* block, int64_t p) const { return block + kKeyTokens * a_.qk + p * kKeyTokens * kStep; }

  void expand(int64_t first_head, int64_t heads, float* expanded) {
    constexpr int64_t kTileRows = 8;  // of kv_b; a multiple of it is kStep
    ArenaScope scope(*ctx_.scratch);
    float* room = ctx_.scratch->take<float>(threads_ * kTileRows * latent_);
    ctx_.pool->run(heads * blocks_, [&](int64_t task, int worker) {
      const int64_t h = task / blocks_, b = task % blocks_,
                    count = std::min<int64_t>(kKeyTokens, tokens_ - b * kKeyTokens);
      const P* latents[kKeyTokens];
      LatentWalk<const P> walk(a_, rows_[0].sequence);
      for (int j = 0; j < count; ++j) latents[j] = walk.at(static_cast<int32_t>(b * kKeyTokens + j));
      float *tile = room + worker * kTileRows * latent_, *to = block(expanded, h, b);
      for (int64_t i = 0; i < a_.qk; i += kTileRows) {
        const Packed keys = load_weights((first_head + h) * (a_.qk + a_.v) + i, std::min(kTileRows, a_.qk - i), tile);
        for (int64_t p = 0; p * kStep < count; ++p)
          dot(keys, std::min<int64_t>(kStep, count - p * kStep), latents + p * kStep, a_.latent_dim, 0,
              {key_panel(to, p) + i * kStep, kStep, 1});
      }
      for (int64_t i = 0; i < a_.v; i += kTileRows) {
        const Packed values =
            load_weights((first_head + h) * (a_.qk + a_.v) + a_.qk + i, std::min(kTileRows, a_.v - i), tile);
        dot(values, count, latents, a_.latent_dim, 0, {value_panel(to, i / kStep) + i % kStep, 1, kStep});
      }
    });
  }

  // Rows of kv_b, packed for the pages' dtype.
  Packed load_weights(int64_t first, int64_t count, float* room) const {
    const Packed tile{room, count, latent_};
    for (int64_t r = 0; r < count; ++r) {
      Packed::Row row = tile.row(r);
      for (int64_t i = 0; i < latent_; i += kStep, row.data += 2 * row.step) {
        const W* from = static_cast<const W*>(a_.kv_b.at(first + r)) + i;
        Lanes::V x, y;
        if (i + kStep <= a_.latent_dim)
          load_step(from, x, y);
        else
          load_step(from, static_cast<int>(a_.latent_dim - i), x, y);
        if constexpr (sizeof(W) != sizeof(P)) restore_step<W>(x, y), arrange_step<P>(x, y);
        Lanes::store(row.data, x), Lanes::store(row.data + row.step, y);
      }
    }
    return tile;
  }

  // A worker's own memory, for a block of rows.
  struct Space {
    float *q, *scores, *o;  // [rows][qk], [rows][kKeyTokens], [rows][values]
    float *top, *sum, *keep;
  };
  int64_t space_floats() const { return kQueryRows * (a_.qk + kKeyTokens + values_ + 3); }

  void attend(int64_t first_head, int64_t heads, float* expanded) {
    ArenaScope scope(*ctx_.scratch);
    float* room = ctx_.scratch->take<float>(threads_ * space_floats());
    const int64_t count = static_cast<int64_t>(rows_.size()), chunks = (count + kQueryRows - 1) / kQueryRows;
    ctx_.pool->run(heads * chunks, [&](int64_t task, int worker) {
      const int64_t h = task % heads, first = (chunks - 1 - task / heads) * kQueryRows;  // long rows first
      float* q = room + worker * space_floats();
      float* scores = q + kQueryRows * a_.qk;
      float* o = scores + kQueryRows * kKeyTokens;
      float* top = o + kQueryRows * values_;
      attend_rows(rows_.subspan(first, std::min<int64_t>(kQueryRows, count - first)), first_head + h,
                  block(expanded, h, 0), {q, scores, o, top, top + kQueryRows, top + 2 * kQueryRows});
    });
  }

  void attend_rows(std::span<const AttendingRow> rows, int64_t head, float* first_block, const Space& s) const {
    const float scale = 1 / std::sqrt(static_cast<float>(a_.qk));
    const int64_t count = static_cast<int64_t>(rows.size());
    for (int64_t r = 0; r < count; ++r) {
      float* q = s.q + r * a_.qk;
      widen_row(a_.query, rows[r].row, head * a_.qk, a_.qk, q);
      for (int i = 0; i < a_.qk; ++i) q[i] *= scale;
      s.top[r] = -std::numeric_limits<float>::infinity(), s.sum[r] = 0;
    }
    std::fill_n(s.o, count * values_, 0.0f);
    const int64_t longest = last_token(rows, 0, count);
    for (int64_t b = 0; b * kKeyTokens < longest; ++b) add_block(rows, b, first_block + b * block_floats(), s);
    for (int64_t r = 0; r < count; ++r) {
      float* o = s.o + r * values_;
      for (int i = 0; i < a_.v; ++i) o[i] /= s.sum[r];
      store_row(a_.out, rows[r].row, head * a_.v, a_.v, o);
    }
  }

  static int64_t last_token(std::span<const AttendingRow> rows, int64_t first, int64_t end) {
    int64_t most = 0;
    for (int64_t r = first; r < end; ++r) most = std::max<int64_t>(most, rows[r].count);
    return most;
  }

  void add_block(std::span<const AttendingRow> rows, int64_t b, float* block, const Space& s) const {
    const int64_t count = static_cast<int64_t>(rows.size());
    // Tokens of the block that each group of rows sees.
    int64_t seen[(kQueryRows + kGroupRows - 1) / kGroupRows];
    for (int64_t g = 0; g * kGroupRows < count; ++g)
      seen[g] = std::clamp<int64_t>(
          last_token(rows, g * kGroupRows, std::min(count, (g + 1) * kGroupRows)) - b * kKeyTokens, 0, kKeyTokens);
    auto each_group = [&](int64_t token, auto f) {  // groups that see more tokens than `token`
      for (int64_t g = 0; g * kGroupRows < count; ++g)
        if (seen[g] > token) f(g, g * kGroupRows, std::min<int64_t>(kGroupRows, count - g * kGroupRows));
    };
    for (int64_t p = 0; p < kPanels; ++p)
      each_group(p * kStep, [&](int64_t, int64_t r, int64_t n) {
        const Strided<float> keys{key_panel(block, p), kStep};
        mix<float>({s.q + r * a_.qk, a_.qk, 1}, n, a_.qk, keys, kStep, s.scores + r * kKeyTokens + p * kStep,
                   kKeyTokens, nullptr);
      });
    each_group(0, [&](int64_t g, int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        softmax(r, std::clamp<int64_t>(rows[r].count - b * kKeyTokens, 0, kKeyTokens), seen[g], s);
    });
    for (int64_t p = 0; p * kStep < values_; ++p)
      each_group(0, [&](int64_t g, int64_t r, int64_t n) {
        const Strided<float> values{value_panel(block, p), kStep};
        mix<float>({s.scores + r * kKeyTokens, kKeyTokens, 1}, n, seen[g], values, kStep, s.o + r * values_ + p * kStep,
                   values_, s.keep + r);
      });
  }

  // Row r's scores become weights: of its own tokens, and 0 for others up to `seen`.
  void softmax(int64_t r, int64_t own, int64_t seen, const Space& s) const {
    using V = Lanes::V;
    float* scores = s.scores + r * kKeyTokens;
    const int64_t end = round_up(seen, Lanes::kCount);
    std::fill(scores + own, scores + end, -std::numeric_limits<float>::infinity());
    const int64_t vectors = round_up(own, Lanes::kCount);
    V top = Lanes::set(s.top[r]), sum = Lanes::zero();
    for (int64_t i = 0; i < vectors; i += Lanes::kCount) top = Lanes::max(top, Lanes::load(scores + i));
    const float largest = Lanes::largest(top);
    top = Lanes::set(largest);
    for (int64_t i = 0; i < vectors; i += Lanes::kCount) {
      const V e = Lanes::exp(Lanes::load(scores + i) - top);
      Lanes::store(scores + i, e);
      sum = sum + e;
    }
    std::fill(scores + vectors, scores + std::max(vectors, end), 0.0f);
    float lanes[Lanes::kCount];
    Lanes::store(lanes, Lanes::exp(Lanes::set(s.top[r] - largest)));
    s.keep[r] = lanes[0];
    s.sum[r] = s.keep[r] * s.sum[r] + Lanes::sum(sum);
    s.top[r] = largest;
  }

  OpContext& ctx_;
  const SparseMlaArgs& a_;
  const std::span<const AttendingRow> rows_;
  const int64_t latent_, values_;  // padded
  const int64_t tokens_, blocks_, threads_;
};

}  // namespace
}  // namespace lathe
