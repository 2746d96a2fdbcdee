#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/vocabulary.h"

namespace lathe {

// What grammars are made of: a byte, or, from 256 on, the added token vocabulary.added()[symbol - 256] as a whole.
// Added tokens are never spelled by bytes: a tag inside a text can't be forged, nor a text by a tag.
using Symbol = uint16_t;
inline constexpr Symbol kFirstAddedSymbol = 256;

// The tokens of a vocabulary as a tree of their symbols, in preorder.
class TokenTrie {
 public:
  struct Node {
    Symbol symbol;
    uint16_t depth;  // the root's is 0
    int32_t end;     // one past the last node below this one
    int32_t tokens;  // tokens that end here: tokens_[node.tokens .. next node's tokens)
  };

  explicit TokenTrie(const Vocabulary& vocabulary);

  const std::vector<Node>& nodes() const { return nodes_; }  // one more at the end, for `tokens`
  std::span<const int32_t> tokens_at(int32_t node) const {
    return {tokens_.data() + nodes_[node].tokens, tokens_.data() + nodes_[node + 1].tokens};
  }
  int32_t size() const { return size_; }  // 1 + the largest id
  // Symbols of a token; empty if there's no such token.
  std::span<const Symbol> symbols(int32_t token) const {
    return token < 0 || token >= size_ ? std::span<const Symbol>()
                                       : std::span<const Symbol>(symbols_).subspan(begins_[token], lengths_[token]);
  }
  int64_t bytes() const;

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<Symbol> symbols_;
  std::vector<uint32_t> begins_, lengths_;  // by token, into symbols_
  int32_t size_ = 0;
};

}  // namespace lathe
