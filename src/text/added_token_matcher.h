#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/byte_range.h"
#include "text/tokenizer_file.h"

namespace lathe {

// Cuts text at added tokens: the leftmost, of those the longest.
class AddedTokenMatcher {
 public:
  // Of `tokens`, those whose `normalized` is as asked.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized);

  struct Piece {
    ByteRange range;
    int32_t id;  // -1: text
  };
  // Appends the pieces of text[range]. No token reaches into `literal`, sorted ranges of `text` that must stay text.
  void cut(std::string_view text, ByteRange range, std::span<const ByteRange> literal,
           std::vector<Piece>& pieces) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;
    int32_t token = -1;  // that ends here
  };
  int32_t child(int32_t node, uint8_t byte) const;
  const AddedToken* longest_at(std::string_view text, size_t at, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool starts_[256] = {};
};

}  // namespace lathe
