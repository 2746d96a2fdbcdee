#pragma once

#include <cstdint>

#include "base/dtype.h"

// The inner steps of the KDA operators, for one head of one sequence: plain pointers, no views. One source for all
// instruction sets (steps_body.h), and one function a step for all operators: two spellings of a gate that are equal on
// paper once drifted a state behind outputs that looked right.
//
// A state lies in memory as [V, K] (kda_layer.h). Over many tokens it is worked on as a *tile*: the transpose, cut into
// blocks of `columns` rows of S, [vp / columns][kp][columns], so that a vector holds one channel of several rows, no
// product needs a sum across a vector, and a block stays in the nearest cache.
namespace lathe {

constexpr int kKdaChunk = 16;  // tokens; with a bound of -5 their log gates sum to -80 at most

// Sizes of a head, and as padded with zeros in scratch.
struct KdaSizes {
  int k, v;
  int kp, vp;  // multiples of 16 and 32
};

// What the recurrence reads of `tokens` tokens.
struct KdaBlock {
  float* q;  // [tokens, kp], normalised, times K^-½
  float* k;  // [tokens, kp], normalised
  float* g;  // [tokens, kp], log decay
  float* v;  // [tokens, vp]
  float* b;  // [tokens]
};

// Where a head's raw inputs lie.
struct KdaHeadSource {
  DType dtype;  // f32 or bf16
  int tokens, width;
  const void* const* raw;    // [width - 1 + tokens + ahead] rows of qkv; nullptr: before position 0
  int ahead;                 // at most tokens: rows after these that are only fetched, since they come next
  int64_t q_at, k_at, v_at;  // elements from a row's begin to the head's channels
  const void* forget;        // the first token's [K]; stride in elements from token to token
  int64_t forget_stride;
  const void* beta;
  int64_t beta_stride;
  const float* taps;     // made by `taps`
  const float* dt_bias;  // [K]
  float rate, bound;     // exp(a_log)
};

// One token's decay applied to its key and query, so that the state needs no pass of its own for it.
struct KdaVectors {
  float* a;   // [kp], exp(g)
  float* ak;  // a·k
  float* aq;  // a·q
  float kq;   // k·q
};

// A chunk of up to kKdaChunk tokens as matrices (model.md 5.4), G the running log gate since its first token.
struct KdaChunk {
  float* x;      // [2·16, kp]: k·exp(G) of each token, then q·exp(G)
  float* keys;   // [16, kp]: k·exp(G_last - G)
  float* decay;  // [kp]: exp(G_last)
  float*
      ep;  // [2·16, 16]: b_i·k_i·k_j·exp(G_i - G_j) below the diagonal; then q_i·k_j·exp(G_i - G_j), with the diagonal
  float* work;  // [64, kp]
  int tokens;
};

struct KdaSteps {
  int columns;  // of a block of a tile

  // Filters of a head's channels, each [channels, width], by tap: out [width, 2·kp + vp].
  void (*taps)(const KdaSizes&, int width, const float* q, const float* k, const float* v, float* out);
  // Convolution, SiLU, norms, gate and beta.
  void (*activate)(const KdaSizes&, const KdaHeadSource&, const KdaBlock&);
  // y = weight·o·rsqrt(mean(o²) + eps)·sigmoid(gate), o rounded to the rows' dtype first.
  void (*gated_norm)(int v, DType, const float* o, const void* gate, const float* weight, float eps, void* y);

  void (*vectors)(const KdaSizes&, const KdaBlock&, int token, KdaVectors&);
  // One token on a state in place; o [V].
  void (*decode)(const KdaSizes&, float* state, const float* k, const KdaVectors&, const float* v, float b, float* o);
  // The same bits for tokens 0..n-1 on a block of a tile, which begins at row `column` of S; o [n, vp].
  void (*tokens)(const KdaSizes&, const KdaBlock&, const KdaVectors*, int n, int column, float* tile_block, float* o);

  // False: the log gates leave the range of the factored form, and the tokens are to be taken one by one.
  bool (*chunk)(const KdaSizes&, const KdaBlock&, int n, KdaChunk&);
  // A block of a tile to its state after the chunk. o nullptr: no outputs.
  void (*advance)(const KdaSizes&, const KdaBlock&, const KdaChunk&, int column, float* tile_block, float* o);
  // The same with the operands of every product rounded to TF32.
  bool (*chunk_tf32)(const KdaSizes&, const KdaBlock&, int n, KdaChunk&);
  void (*advance_tf32)(const KdaSizes&, const KdaBlock&, const KdaChunk&, int column, float* tile_block, float* o);

  // A block of a tile from rows column, column + 1, ... of a state [V, K], and back.
  void (*load_block)(const KdaSizes&, const float* state, int column, float* tile_block);
  void (*store_block)(const KdaSizes&, const float* tile_block, int column, float* state);
  // to = from·A + to for a block of a tile; A [kp, kp]. tf32: operands rounded.
  void (*join)(const KdaSizes&, const float* a, const float* from_block, float* to_block, bool tf32);

  // out[m][j] = S[j, :]·x[m] for m < n; the state is read once, whatever n.
  void (*products)(const KdaSizes&, const float* state, const float* const* x, int n, float* const* out);
  // S = S·Diag(decay) + sum_j d_j·key_jᵀ; d [records, vp], keys [records, kp].
  void (*fold)(const KdaSizes&, float* state, const float* decay, const float* d, const float* keys, int records);
  // a += sum_j p[j]·d_j and b += sum_j q[j]·d_j; d [records, vp]
  void (*combine)(const KdaSizes&, const float* d, int records, const float* p, const float* q, float* a, float* b);
  void (*exponential)(const float* x, float* out, int count);  // count: a multiple of 16
};

const KdaSteps& kda_steps_portable();
const KdaSteps& kda_steps_avx2();    // only where the machine has it
const KdaSteps& kda_steps_avx512();  // likewise
// The best this machine runs.
const KdaSteps& kda_steps();

KdaSizes kda_sizes(int k, int v);

}  // namespace lathe
