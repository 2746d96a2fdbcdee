#include "model/glm5_next/scratch_bound.h"

#include <algorithm>
#include <bit>

#include "ops/hc_boundary/block_sizes.h"
#include "ops/index_select/wave.h"
#include "ops/kda_prefill/head_run.h"
#include "ops/linear/panel_work.h"
#include "ops/sparse_mla/form.h"

namespace lathe::glm5_next {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kFloat = 4;

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Products over panels of weights (linear, mlp, moe, lm_head): rows are prepared once in the form a weight asks for.
class Panels {
 public:
  explicit Panels(const ScratchRequest& r) : r_(r) {}

  // A prepared row, in every form of this model. fp32 is the widest: bf16 is widened where there is no dot instruction
  // for it, e4m3 always.
  int64_t prepared(int64_t width) const { return (r_.w8a8 ? 2 : 1) * kFloat * up(width, 64) + kFloat; }
  // What lies between gate and down: prepared, and raw where it is quantised from fp32.
  int64_t middle(int64_t inner) const { return prepared(inner); }

  // `row`: bytes of a row, `counted`: what the operator itself reckons with when it cuts the rows into passes.
  int64_t pass(int64_t rows, int64_t row, int64_t counted, int64_t widest) const {
    return std::min(rows, pass_rows(counted)) * row + r_.threads * worker(widest);
  }

 private:
  // Values twice, sums, one piece of a panel, one row.
  static int64_t worker(int64_t widest) {
    return kPanelValues * kFloat + kMaxBlockRows * kSumBytes + kPanelBytes + up(widest, 64) * kFloat + 1024;
  }
  const ScratchRequest& r_;
};

int64_t products(const TextConfig& c, const ScratchRequest& r) {
  const Panels p(r);
  const int64_t widest =
      std::max({int64_t{2} * c.hidden, int64_t{c.kda_heads} * c.kda_dim, int64_t{c.heads} * c.v, int64_t{c.q_rank}});
  const int64_t linear = p.pass(r.rows, p.prepared(widest), kFloat * widest, widest);
  const int64_t head = p.pass(r.logit_rows, p.prepared(c.hidden), kFloat * c.hidden, c.hidden);
  return std::max(linear, head);
}

int64_t feed_forward(const TextConfig& c, const ScratchRequest& r) {
  const Panels p(r);
  const int64_t dense = p.pass(r.rows, p.prepared(c.hidden) + p.middle(c.dense_inner),
                               2 * kFloat * (c.hidden + c.dense_inner), std::max(c.hidden, c.dense_inner));
  const int64_t shared = int64_t{c.expert_inner} * c.shared_experts;
  // The router's form is f32 in any case; a choice is an id, a weight, and both again by expert.
  const int64_t row = kFloat * up(c.hidden, 64) + p.prepared(c.hidden) + 2 * kFloat * (c.experts + c.hidden) / 2 +
                      c.top_k * (16 + p.middle(c.expert_inner)) + p.middle(shared);
  const int64_t counted =
      2 * kFloat * c.hidden + 8 * (c.experts + c.hidden) + 2 * kFloat * (c.top_k * c.expert_inner + shared);
  const int64_t widest = std::max({int64_t{c.hidden}, shared, int64_t{c.expert_inner}, int64_t{c.experts} * 4});
  // Sums of a run of output panels stay in a second-level cache, unless one panel needs more.
  const int64_t sums = r.threads * std::max(kMiB, std::min(r.rows, pass_rows(counted)) * kPanel * kFloat);
  return std::max(dense, p.pass(r.rows, row, counted, widest) + sums + 64 * c.experts);
}

int64_t hyper(const TextConfig& c, const ScratchRequest& r) {
  const int64_t s = c.hc_copies, n = 2 * s + s * s, padded = up(c.hidden, kHcPieceChannels) + kHcPieceChannels;
  const int64_t wide_fn = n * s * c.hidden * kFloat;
  const int64_t sums = up(n + 1, 16) * kFloat;
  const int64_t few_rows = std::min(r.rows, int64_t{2} * kHcBlockRows * r.threads) * (padded / kHcPieceChannels) * sums;
  return wide_fn + few_rows + r.threads * (kHcBlockRows * (s * padded * kFloat + sums) + 2 * padded * kFloat);
}

int64_t kda(const TextConfig& c, const ScratchRequest& r) {
  const int64_t d = up(c.kda_dim, 32), heads = c.kda_heads, tile = d * d * kFloat, rows = kKdaChunk * d * kFloat;
  const int64_t activated = 7 * rows, matrices = 7 * rows + 2 * kKdaChunk * kKdaChunk * kFloat, outputs = 3 * rows;
  const int64_t taps = heads * c.conv_width * 3 * d * kFloat, pointers = (128 + c.conv_width) * kKdaChunk;
  const int64_t worker = activated + matrices + outputs + taps + pointers + d * kFloat +
                         (std::min<int64_t>(heads, kKdaTaskHeads) + 6) * tile;
  // Context-parallel: every rank's map of every head (A and B), twice the state.
  const int64_t maps = r.ranks > 1 ? heads * tile * (2 * (r.ranks + 1) + 2) : 0;
  return r.threads * worker * (r.ranks > 1 ? 2 : 1) + maps;
}

int64_t index_select(const TextConfig& c, const ScratchRequest& r) {
  const int64_t pools = r.context / c.kpool;
  if (pools <= c.index_top_k / c.kpool) return r.threads * 2 * c.kpool * up(c.index_dim, 16) * kFloat + kMiB / 4;
  const int64_t rows = std::min(r.rows, kIndexWaveFloats / pools + kIndexBlockRows);
  const int64_t query = up(c.index_heads, 16) * (up(c.index_dim, 16) + 16) * kFloat;
  return rows * (query + pools * kFloat + 256) + r.threads * (2 * pools * kFloat + c.index_top_k * kFloat + kMiB / 2);
}

int64_t sparse_mla(const TextConfig& c, const ScratchRequest& r) {
  const int64_t heads = c.heads >= 16 ? up(c.heads, 16)
                                      : int64_t{std::max(4u, std::bit_ceil(static_cast<unsigned>(c.heads)))},
                latent = up(c.latent, 32), attended = std::min<int64_t>(r.context, c.index_top_k + c.kpool);
  const int64_t part = heads * latent + 2 * heads, wave = std::max<int64_t>(1, kAbsorbedFloats / (2 * heads * latent));
  const int64_t rows = std::min(r.rows, wave),
                split = std::min<int64_t>(r.rows, 4 * r.threads) * (attended / kPieceTokens + 1);
  const int64_t room = kPieceTokens * heads + part + kWeightRows * (latent + std::max(c.qk, c.v)) + 4 * c.v;
  const int64_t absorbed = rows * heads * latent + std::max(rows, split) * part + r.threads * room;
  const int64_t head = up(attended, kKeyTokens) * (c.qk + up(c.v, 32));
  const int64_t expanded = std::min(c.heads * head, std::max(kExpandedFloats, head)) +
                           r.threads * (kQueryRows * (c.qk + kKeyTokens + up(c.v, 32) + 3) + 8 * latent);
  return kFloat * (r.rows < 16 ? absorbed : std::max(absorbed, expanded));
}

int64_t sampling(const TextConfig& c, const ScratchRequest& r) {
  return r.threads * (int64_t{c.vocab} * 10 + (64 << 10));
}

}  // namespace

int64_t scratch_bound(const TextConfig& c, const ScratchRequest& r) {
  constexpr int64_t kAlignment = kMiB / 4;  // of the many pieces
  return std::max({products(c, r), feed_forward(c, r), hyper(c, r), kda(c, r), index_select(c, r), sparse_mla(c, r),
                   sampling(c, r)}) +
         kAlignment;
}

}  // namespace lathe::glm5_next
