#include "model/glm5_next/scratch_bound.h"

#include <algorithm>
#include <bit>

namespace lathe::glm5_next {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kFloat = 4;

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Products over panels of weights (linear, mlp, moe, lm_head): rows are prepared once in the form a weight asks for.
class Panels {
 public:
  explicit Panels(const ScratchRequest& r) : r_(r) {}

  // A prepared row, in every form of this model.
  int64_t prepared(int64_t width) const { return up(width, 64) * form() + (r_.w8a8 ? up(width, 64) + kFloat : 0); }
  // What lies between gate and down: prepared, and raw where it is quantised from fp32.
  int64_t middle(int64_t inner) const {
    return r_.w8a8 ? up(inner, 64) * (1 + kFloat) + kFloat : up(inner, 64) * form();
  }
  int64_t form() const { return r_.dtype == DType::kF32 ? kFloat : 2; }

  // `row`: bytes of a row, `counted`: what the operator itself reckons with when it cuts the rows into passes.
  int64_t pass(int64_t rows, int64_t row, int64_t counted, int64_t widest) const {
    constexpr int64_t kPassBytes = 32 * kMiB, kLeastRows = 192;
    const int64_t at_once = std::min(rows, std::max(kLeastRows, kPassBytes / std::max(counted, int64_t{1})));
    return at_once * row + r_.threads * worker(widest);
  }

 private:
  // Values twice, sums, one piece of a panel, one row.
  static int64_t worker(int64_t widest) {
    return 192 * 16 * kFloat * 2 + 192 * 512 + (16 << 10) + up(widest, 64) * kFloat + 1024;
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
  const int64_t sums = r.threads * std::max(kMiB, std::min(r.rows, 32 * kMiB / counted + 192) * 16 * kFloat);
  return std::max(dense, p.pass(r.rows, row, counted, widest) + sums + 64 * c.experts);
}

int64_t hyper(const TextConfig& c, const ScratchRequest& r) {
  constexpr int64_t kBlockRows = 16, kPiece = 128;
  const int64_t s = c.hc_copies, n = 2 * s + s * s, padded = up(c.hidden, kPiece) + kPiece;
  const int64_t wide_fn = n * s * c.hidden * kFloat;
  const int64_t sums = up(n + 1, 16) * kFloat;
  const int64_t few_rows = std::min(r.rows, 2 * kBlockRows * r.threads) * (padded / kPiece) * sums;
  return wide_fn + few_rows + r.threads * (kBlockRows * (s * padded * kFloat + sums) + 2 * padded * kFloat);
}

int64_t kda(const TextConfig& c, const ScratchRequest& r) {
  constexpr int64_t kChunk = 64, kHeadsATask = 8;
  const int64_t d = up(c.kda_dim, 16), heads = c.kda_heads, tile = d * d * kFloat;
  const int64_t activated = kChunk * d * kFloat * (3 + 1 + 3),
                matrices = kChunk * d * kFloat * 7 + 2 * kChunk * kChunk * kFloat;
  const int64_t outputs = 3 * kChunk * d * kFloat, taps = c.conv_width * 3 * d * kFloat + 3 * kChunk * 8;
  const int64_t worker =
      activated + matrices + outputs + taps + (std::min(heads, kHeadsATask) + 6) * tile + 64 * kChunk;
  // Context-parallel: every rank's map of every head (A and B), twice the state.
  const int64_t maps = r.ranks > 1 ? heads * tile * (2 * (r.ranks + 1) + 2) : 0;
  return r.threads * worker + maps;
}

int64_t index_select(const TextConfig& c, const ScratchRequest& r) {
  constexpr int64_t kWaveFloats = 4 << 20, kBlockRows = 8;
  const int64_t pools = r.context / c.kpool;
  if (pools <= c.index_top_k / c.kpool) return r.threads * 2 * c.kpool * up(c.index_dim, 16) * kFloat + kMiB / 4;
  const int64_t rows = std::min(r.rows, kWaveFloats / pools + kBlockRows);
  const int64_t query = up(c.index_heads, 16) * (up(c.index_dim, 16) + 16) * kFloat;
  return rows * (query + pools * kFloat + 256) + r.threads * (2 * pools * kFloat + c.index_top_k * kFloat + kMiB / 2);
}

int64_t sparse_mla(const TextConfig& c, const ScratchRequest& r) {
  constexpr int64_t kWaveFloats = 4 << 20, kExpandedFloats = 8 << 20, kPiece = 256, kQueryRows = 288, kWeightRows = 48;
  const int64_t heads = c.heads >= 16 ? up(c.heads, 16)
                                      : int64_t{std::max(4u, std::bit_ceil(static_cast<unsigned>(c.heads)))},
                latent = up(c.latent, 32), attended = std::min<int64_t>(r.context, c.index_top_k + c.kpool);
  const int64_t part = heads * latent + 2 * heads, wave = std::max<int64_t>(1, kWaveFloats / (2 * heads * latent));
  const int64_t rows = std::min(r.rows, wave),
                split = std::min<int64_t>(r.rows, 4 * r.threads) * (attended / kPiece + 1);
  const int64_t room = kPiece * heads + part + kWeightRows * (latent + std::max(c.qk, c.v)) + 4 * c.v;
  const int64_t absorbed = rows * heads * latent + std::max(rows, split) * part + r.threads * room;
  const int64_t head = up(attended, kPiece) * (c.qk + up(c.v, 32));
  const int64_t expanded = std::min(c.heads * head, std::max(kExpandedFloats, head)) +
                           r.threads * (kQueryRows * (c.qk + kPiece + up(c.v, 32) + 3) + 8 * latent);
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
