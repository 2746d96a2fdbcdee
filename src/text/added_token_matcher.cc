#include "text/added_token_matcher.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace lathe {

namespace {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // the joiners
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

// First byte of the character that ends in front of `end`.
size_t character_before(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool touches_word(std::string_view text, ByteRange match) {
  if (match.begin > 0 && is_word(utf8_step(text, character_before(text, match.begin)).character)) return true;
  return match.end < text.size() && is_word(utf8_step(text, match.end).character);
}

size_t spaces_before(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t before = character_before(text, at);
    if (!is_space(utf8_step(text, before).character)) break;
    at = before;
  }
  return at;
}

size_t spaces_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!is_space(step.character)) break;
    at += step.bytes;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    int32_t node = 0;
    for (char c : token.content) {
      const uint8_t byte = static_cast<uint8_t>(c);
      int32_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        nodes_[node].next.emplace_back(byte, next);
        nodes_.emplace_back();
      }
      node = next;
    }
    starts_[static_cast<uint8_t>(token.content[0])] = true;
    nodes_[node].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
  }
}

int32_t AddedTokenMatcher::child(int32_t node, uint8_t byte) const {
  for (const auto& [b, next] : nodes_[node].next)
    if (b == byte) return next;
  return -1;
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t at, size_t end) const {
  int32_t node = 0, token = -1;
  for (; at < end; ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node < 0) break;
    if (nodes_[node].token >= 0) token = nodes_[node].token;
  }
  return token < 0 ? nullptr : &tokens_[token];
}

void AddedTokenMatcher::cut(std::string_view whole, ByteRange range, std::span<const ByteRange> literal,
                            std::vector<Piece>& pieces) const {
  const std::string_view text = whole.substr(range.begin, range.end - range.begin);
  const auto give = [&](size_t begin, size_t end, int32_t id) {
    pieces.push_back({{range.begin + begin, range.begin + end}, id});
  };
  size_t done = 0;
  size_t barrier = 0;  // index of the first literal range that ends behind `at`
  for (size_t at = 0; !empty() && at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    while (barrier < literal.size() && literal[barrier].end <= range.begin + at) ++barrier;
    size_t limit = text.size();
    if (barrier < literal.size()) {
      if (literal[barrier].begin <= range.begin + at) {
        at = std::min(literal[barrier].end, range.end) - range.begin;
        continue;
      }
      limit = std::min(limit, literal[barrier].begin - range.begin);
    }
    const AddedToken* token = longest_at(text, at, limit);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;  // a match that is refused is passed over as a whole, as in the reference library
    if (token->single_word && touches_word(text, {begin, end})) continue;
    if (token->lstrip) begin = std::max(spaces_before(text, begin), done);
    if (token->rstrip) end = spaces_behind(text, end);
    if (done < begin) give(done, begin, -1);
    give(begin, end, token->id);
    done = end;
    at = std::max(at, done);
  }
  if (done < text.size()) give(done, text.size(), -1);
}

}  // namespace lathe
