#pragma once

#include "ops/op.h"

// What every KDA operator takes of a layer, and the memory of its sequences (model.md 5, kernels.md 2).
//
//   q, k, v = silu(conv(qkv))         q = K^-½·q/|q|    k = k/|k|    |x| = sqrt(sum x² + 1e-6)
//   a = exp(g)   b = sigmoid(beta)    g = bound·sigmoid(e^a_log·(f + dt_bias)), or -e^a_log·softplus(f + dt_bias)
//   S~ = S·Diag(a)    d = b·(v - S~·k)    S = S~ + d·kᵀ    o = S·q
//   y = norm_weight·o·rsqrt(mean(o²) + norm_eps)·sigmoid(gate)
//
// Roundings to the rows' dtype, as the reference has them: conv output after silu, b, o before the norm, y; all else
// fp32. The convolution is causal, one filter a channel, without bias: the last column meets the current row; rows
// before position 0 count as zero.
namespace lathe {

struct KdaLayer {
  Array<const float> conv_weight;  // [channels·width], channels = heads·(2K + V)
  Array<const float> a_log;        // [heads]
  Array<const float> dt_bias;      // [heads·K]
  Array<const float> norm_weight;  // [V]
  int heads = 0, k = 0, v = 0, width = 0;
  float bound = 0;  // lower bound of g, such as -5; 0: none, the softplus form
  float norm_eps = 1e-5f;

  int64_t channels() const { return int64_t{heads} * (2 * k + v); }

  template <class Visitor>
  void visit(Visitor&& f) {
    f("conv_weight", conv_weight, Role::kIn), f("a_log", a_log, Role::kIn), f("dt_bias", dt_bias, Role::kIn);
    f("norm_weight", norm_weight, Role::kIn);
  }
};

// The raw projections of a batch of rows: f32 or bf16, all alike.
struct KdaRows {
  Rows qkv;     // [rows, channels]: all q, all k, all v (in each block head after head), before the convolution
  Rows forget;  // [rows, heads·K], f
  Rows beta;    // [rows, heads], logits
  Rows gate;    // [rows, heads·V]

  template <class Visitor>
  void visit(Visitor&& f) {
    f("qkv", qkv, Role::kIn), f("forget", forget, Role::kIn), f("beta", beta, Role::kIn), f("gate", gate, Role::kIn);
  }
};

// Per slot: the state, and a ring of raw convolution inputs: position p lies at row p mod ring, ring >= width - 1.
// A ring with room for drafts makes their rollback a matter of the position. At position 0 a slot counts as empty,
// whatever it holds.
struct KdaMemory {
  Pool state;  // [slots, heads·V·K], K fastest; f32 (bf16 and int8 where a variant offers them)
  Pool conv;   // [slots, ring·channels], dtype of the rows
  int ring = 0;

  template <class Visitor>
  void visit(Visitor&& f) {
    f("state", state, Role::kUpdate), f("conv", conv, Role::kUpdate);
  }
};

// What contradicts the above, in words. `rows`: those of the call; y is [rows, heads·V].
Status check_kda(const KdaRows& in, const KdaLayer& layer, const KdaMemory& memory, const Rows& y, int64_t rows);

}  // namespace lathe
