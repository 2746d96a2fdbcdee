#pragma once

#include <vector>

#include "feedback/kda_tokens.h"

// The chain of context-parallel KDA by itself: the map A of a span of tokens, S -> S·A + B, carried from chunk to
// chunk. Products are emulated, operand by operand, so that number formats can be exchanged where no machine has them.
namespace lathe {

enum class KdaOperands {
  kFp32,
  kTf32x3,         // each operand in two TF32 parts, three products
  kTf32,           // rounded to TF32, to nearest even
  kTf32Truncated,  // what a tensor core does to fp32 operands that nobody rounded
  kBf16,
};
enum class KdaChainForm {
  kProduct,    // A <- A·M, M the map of a chunk
  kIncrement,  // A <- A·Diag(decay) - (A·Wᵀ)·keys: what stays of A passes no product
};
const char* kda_operands_name(KdaOperands operands);
const char* kda_chain_form_name(KdaChainForm form);

// The map of a chunk, M = Diag(decay) - Wᵀ·keys, made in doubles.
struct KdaChunkMap {
  static constexpr int kTokens = 16;
  explicit KdaChunkMap(const KdaTokens& tokens);  // its first 16
  std::vector<double> decay, w, keys;             // [128], [16, 128], [16, 128]
};

// T: float for what is judged, double for the oracle.
template <class T>
class KdaChain {
 public:
  KdaChain(KdaChainForm form, KdaOperands operands);
  void append(const KdaChunkMap& map);
  const std::vector<T>& a() const { return a_; }  // [128, 128]

 private:
  const KdaChainForm form_;
  const KdaOperands operands_;
  std::vector<T> a_, chunk_;
};

// c [rows, columns] += sign·a [rows, inner]·b [inner, columns], sums in fp32 over ascending inner.
void kda_emulated_product(KdaOperands operands, int rows, int inner, int columns, const float* a, const float* b,
                          float sign, float* c);

}  // namespace lathe
