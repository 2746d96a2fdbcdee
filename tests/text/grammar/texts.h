#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "testing/golden.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

// Texts through grammars, in tokens as they may come.
namespace lathe::testing {

inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(source_path("models/demo")).value();
  return tokenizer;
}

inline const std::shared_ptr<const TokenTrie>& demo_trie() {
  static const auto trie = std::make_shared<const TokenTrie>(demo_tokenizer().vocabulary());
  return trie;
}

inline Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source, const GrammarLimits& limits = {}) {
  return Grammar::compile(source, demo_tokenizer(), demo_trie(), limits);
}

inline std::vector<uint32_t> mask_of(const GrammarState& state, std::span<const int32_t> ends = {}) {
  std::vector<uint32_t> mask((demo_trie()->size() + 31) / 32);
  state.allowed(ends, mask);
  return mask;
}

inline bool has(const std::vector<uint32_t>& mask, int32_t token) { return mask[token / 32] >> (token % 32) & 1; }

// Any tokens that spell `text`, not the tokenizer's own.
inline std::vector<int32_t> random_tokens(std::string_view text, std::mt19937& random) {
  const auto& trie = *demo_trie();
  const auto& nodes = trie.nodes();
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    std::vector<std::pair<size_t, int32_t>> found;  // bytes, token
    int32_t node = 0;
    for (size_t n = 0; n < text.size(); ++n) {
      int32_t child = node + 1;
      while (child < nodes[node].end && nodes[child].symbol != static_cast<uint8_t>(text[n])) child = nodes[child].end;
      if (child >= nodes[node].end) break;
      node = child;
      for (const int32_t t : trie.tokens_at(node)) found.push_back({n + 1, t});
    }
    if (found.empty()) return {};
    const auto [bytes, token] = found[std::uniform_int_distribution<size_t>(0, found.size() - 1)(random)];
    tokens.push_back(token);
    text.remove_prefix(bytes);
  }
  return tokens;
}

// Whether the whole text is taken; masks are asked on the way and must agree with what advance() does.
inline bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text, std::mt19937& random) {
  GrammarState state(grammar);
  for (const int32_t token : random_tokens(text, random)) {
    const bool allowed = has(mask_of(state), token);
    LATHE_CHECK(state.advance(token) == allowed);
    if (!allowed) return false;
  }
  return state.may_end();
}

}  // namespace lathe::testing
