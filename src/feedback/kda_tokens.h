#pragma once

#include <array>
#include <cstdint>
#include <vector>

// Seeded activated tokens of one KDA head of 128 x 128. Any token can be made at any time, so a million need no memory.
namespace lathe {

enum class KdaTokenGates {
  kForget,  // log decays over (-5, -0.05)
  // Every second channel's log decay lies above -1e-3, at scales from 1e-3 to 1e-5, and keys touch a channel the less
  // the longer it is to last: else the delta rule, not the gate, would erase it. The others: (-3, -0.01).
  kRetain,
};

constexpr int kKdaTokenDim = 128;  // K and V

// A few consecutive tokens, [tokens, 128] each; b [tokens]. q and k are normalised.
struct KdaTokens {
  explicit KdaTokens(int capacity);
  std::vector<float> q, k, g, v, b;
};

class KdaTokenSource {
 public:
  KdaTokenSource(KdaTokenGates gates, uint64_t seed);
  // Tokens first, first + 1, ... to the front of `out`.
  void make(int64_t first, int count, KdaTokens& out) const;

 private:
  void make_one(int64_t token, float* q, float* k, float* g, float* v, float* b) const;

  KdaTokenGates gates_;
  uint64_t seed_;
  std::array<float, kKdaTokenDim> decay_, key_size_;  // of each channel; decay 0: a forgetting one
};

}  // namespace lathe
