#include "text/grammar/token_trie.h"

#include <algorithm>
#include <limits>

namespace lathe {

TokenTrie::TokenTrie(const Vocabulary& vocabulary) : size_(vocabulary.size()) {
  begins_.assign(size_, 0);
  lengths_.assign(size_, 0);
  for (int32_t id = 0; id < size_; ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    if (vocabulary.is_added(id) || vocabulary.is_special(id) || bytes.size() > std::numeric_limits<uint16_t>::max())
      continue;
    begins_[id] = static_cast<uint32_t>(symbols_.size());
    lengths_[id] = static_cast<uint32_t>(bytes.size());
    for (const char c : bytes) symbols_.push_back(static_cast<uint8_t>(c));
  }
  const size_t most_added = std::numeric_limits<Symbol>::max() - kFirstAddedSymbol;
  for (size_t i = 0; i < std::min(vocabulary.added().size(), most_added); ++i) {
    const int32_t id = vocabulary.added()[i].id;
    begins_[id] = static_cast<uint32_t>(symbols_.size());
    lengths_[id] = 1;
    symbols_.push_back(static_cast<Symbol>(kFirstAddedSymbol + i));
  }

  for (int32_t id = 0; id < size_; ++id)
    if (lengths_[id] > 0) tokens_.push_back(id);
  std::sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) {
    const auto x = symbols(a), y = symbols(b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  });

  std::vector<int32_t> path = {0};  // nodes from the root to the last one
  nodes_.push_back({0, 0, 0, 0});
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::span<const Symbol> s = symbols(tokens_[i]);
    size_t shared = 0;
    while (shared + 1 < path.size() && shared < s.size() && nodes_[path[shared + 1]].symbol == s[shared]) ++shared;
    for (; path.size() > shared + 1; path.pop_back()) nodes_[path.back()].end = static_cast<int32_t>(nodes_.size());
    for (size_t d = shared; d < s.size(); ++d) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({s[d], static_cast<uint16_t>(d + 1), 0, static_cast<int32_t>(i)});
    }
  }
  for (; !path.empty(); path.pop_back()) nodes_[path.back()].end = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({0, 0, 0, static_cast<int32_t>(tokens_.size())});
}

int64_t TokenTrie::bytes() const {
  return static_cast<int64_t>(nodes_.size() * sizeof(Node) + (tokens_.size() + begins_.size() + lengths_.size()) * 4 +
                              symbols_.size() * sizeof(Symbol));
}

}  // namespace lathe
