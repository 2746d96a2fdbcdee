#pragma once

#include "ops/kda_prefill/kda_layer.h"

// Decode from a checkpoint of the state and a ring of records (ReplaySSM; kernels.md K5r). Formulas: kda_layer.h.
//
// A slot's state S0 stands `cursor` committed tokens behind. Record j (0-based) of the ring holds, for each head, of
// the j-th token since S0: the pre-decayed key k·exp(-G) with G = sum of g since S0 up to and including that token, the
// vector d, and the running log gate G [K]. Then, with G of the current token,
//   S~·x = (S0 + sum_j d_j·(k_j·exp(-G_j))ᵀ)·Diag(exp(G))·x .
// A step takes 1..n rows a sequence (drafts under verification), writes records at cursor, cursor + 1, ... and outputs
// for all rows; it writes neither the state nor the cursor. Which of the rows count is decided later by the executor,
// which advances the cursor once a step after the whole forward succeeded: rollback is to advance it less.
//
// Fold: where cursor + n > length, the committed records are folded into S0 first, and this step's records begin at 0;
// the executor follows the same rule (replay_base). Only committed records are ever folded. Without a gate bound a head
// whose running log gate would pass -80 folds its committed records early and marks them as neutral (key and d zero,
// G zero). A row that passes it even so keeps its true G, and its key pre-decayed by e^80 only: whoever reads the
// record decays it by exp(G - min(G_j + 80, 0)) instead of exp(G), a difference of log gates. At position 0 the slot
// counts as empty: the state is cleared, the cursor taken as 0. `flush`: fold all committed records and leave an empty
// ring (before a state is exported, copied or checkpointed); in.*.rows == 0 then. Tolerance of y: 1e-5 with f32 rows
// and ring; 5e-3 with bf16. Rows of different sequences are independent.
namespace lathe {

// The most records that a gate bounded by `bound` (0: unbounded, folds early) leaves within fp32, up to 16, where the
// bytes of state and ring are fewest.
constexpr int ring_length(float bound) {
  int length = 16;
  while (length > 1 && (length - 1) * -bound >= 80) --length;
  return length;
}

// Where this step's records begin: `cursor` as it stands, or 0 after a fold.
constexpr int replay_base(int cursor, int rows, int length) { return cursor + rows > length ? 0 : cursor; }

struct KdaReplayArgs {
  KdaRows in;
  KdaLayer layer;
  Ragged runs;                  // rows and first positions of the sequences, 1..length rows each
  Array<const int32_t> slot;    // [sequences]; -1: padding
  Array<const int32_t> cursor;  // [slots]: committed records of each slot, as before this step
  KdaMemory memory;             // state is written by folds only; conv ring must hold width - 1 + rows of a run
  Pool ring_key;                // [slots, heads·length·K], pre-decayed; f32 or bf16
  Pool ring_d;                  // [slots, heads·length·V], f32 or bf16
  Pool ring_gate;               // [slots, heads·length·K], running log gates, f32
  int length = 16;              // records a slot, at most ring_length(bound) with a bound
  bool flush = false;
  Rows y;  // [rows, heads·V]

  template <class V>
  void visit(V&& f) {
    in.visit(f), layer.visit(f), f("runs", runs, Role::kIn), f("slot", slot, Role::kIn), f("cursor", cursor, Role::kIn);
    memory.visit(f), f("ring_key", ring_key, Role::kUpdate), f("ring_d", ring_d, Role::kUpdate);
    f("ring_gate", ring_gate, Role::kUpdate), f("y", y, Role::kOut);
  }
};

Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
extern const Op<KdaReplayArgs> kKdaReplay;

}  // namespace lathe
