#pragma once

#include <cstdint>

namespace lathe {

// Which form the dense rows of one sequence take: those whose sets are prefixes.
enum class MlaForm { kAbsorbed, kExpanded };

struct MlaProblem {
  int64_t rows;      // dense rows the sequence brings in this call
  int64_t tokens;    // length of the longest prefix
  int64_t attended;  // sum of the prefixes' lengths
  int64_t heads, qk, v, latent;
};

// The form of fewer products. Expanded: keys and values of every token, then qk + v a token and head. Absorbed: q~ and
// Wv of every row, then twice the latent width a token and head. Short runs are always absorbed, so that a verified
// draft has the bits of plain decode.
constexpr MlaForm choose_form(const MlaProblem& p) {
  constexpr int64_t kLeastRows = 16;
  if (p.rows < kLeastRows) return MlaForm::kAbsorbed;
  const int64_t kv_b = p.heads * (p.qk + p.v) * p.latent;
  const int64_t expanded = p.tokens * kv_b + p.attended * p.heads * (p.qk + p.v);
  const int64_t absorbed = p.rows * kv_b + p.attended * 2 * p.heads * p.latent;
  return expanded < absorbed ? MlaForm::kExpanded : MlaForm::kAbsorbed;
}

// Absorbed: tokens of a piece of a row's set, 256 KB of bf16 latents of 512 channels: read from memory for the scores,
// from L2 for z.
constexpr int kPieceTokens = 256;
// Rows that share a reading of a head's kv_b.
constexpr int64_t kWeightRows = 48;
// q~ and z kept at a time.
constexpr int64_t kAbsorbedFloats = 4 << 20;

// Expanded: keys and values of a block, 256 channels each: 512 KB, and of as many rows as this q, scores and o: they
// share L2.
constexpr int kKeyTokens = 256;
constexpr int kQueryRows = 288;
// Keys and values kept at a time, unless one head needs more.
constexpr int64_t kExpandedFloats = 4 << 20;

static_assert(choose_form({2048, 2048, 2048 * 1024, 8, 256, 256, 512}) == MlaForm::kExpanded);  // a prompt
static_assert(choose_form({64, 2048, 64 * 2016, 8, 256, 256, 512}) == MlaForm::kAbsorbed);      // a short chunk of it
static_assert(choose_form({4, 4, 10, 8, 256, 256, 512}) == MlaForm::kAbsorbed);                 // a draft

}  // namespace lathe
