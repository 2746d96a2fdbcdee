#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "text/byte_alphabet.h"
#include "text/byte_hash.h"
#include "text/utf8.h"

namespace lathe {

namespace {

// Up to this length the pairs' ranks are scanned for each merge; beyond, a heap hands them out.
constexpr size_t kShort = 48;

// Bytes that no valid UTF-8 holds: a vocabulary may lack them, because broken text is replaced before it gets here.
constexpr bool never_in_utf8(int b) { return b == 0xC0 || b == 0xC1 || b >= 0xF5; }

}  // namespace

Result<Bpe> Bpe::build(const TokenizerFile& file, const Vocabulary& vocabulary) {
  Bpe bpe;
  bpe.whole_first_ = file.ignore_merges;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    bpe.byte_ids_[b] = vocabulary.find({&byte, 1});
    if (bpe.byte_ids_[b] < 0 && !never_in_utf8(b))
      return corrupt("{}: model.vocab: has no entry '{}' for byte {}", file.name, spelling_of_bytes({&byte, 1}), b);
  }
  bpe.slots_.resize(std::bit_ceil(file.merges.size() * 3 / 2 + 2));
  bpe.of_bytes_.resize(256 * 256);
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const auto id_of = [&](const std::string& spelling) {
      const std::optional<std::string> bytes = bytes_of_spelling(spelling);
      return bytes ? vocabulary.find(*bytes) : -1;
    };
    const int32_t a = id_of(left), b = id_of(right), merged = id_of(left + right);
    if (a < 0 || b < 0 || merged < 0)
      return corrupt("{}: model.merges[{}]: '{}' is not in the vocabulary", file.name, rank,
                     a < 0   ? left
                     : b < 0 ? right
                             : left + right);
    bpe.put(a, b, {static_cast<uint32_t>(rank), merged});
  }
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) bpe.of_bytes_[a << 8 | b] = bpe.find(bpe.byte_ids_[a], bpe.byte_ids_[b]);
  return bpe;
}

// A pair that is listed twice keeps its last rank, as in the reference library's map.
void Bpe::put(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  size_t at = fold(pair, 0x9E3779B97F4A7C15u) & (slots_.size() - 1);
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {pair, merge};
}

Bpe::Merge Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t at = fold(pair, 0x9E3779B97F4A7C15u) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return slots_[at].merge;
    if (slots_[at].pair == kEmpty) return {};
  }
}

void Bpe::encode(std::string_view piece, const Vocabulary& vocabulary, std::vector<int32_t>& out) const {
  if (whole_first_)
    if (const int32_t id = vocabulary.find(piece); id >= 0) return out.push_back(id);
  piece.size() <= kShort ? merge_short(piece, out) : merge_long(piece, out);
}

void Bpe::merge_short(std::string_view piece, std::vector<int32_t>& out) const {
  int32_t ids[kShort];
  Merge merges[kShort];  // of ids[i] with ids[i + 1]
  int n = static_cast<int>(piece.size());
  const auto byte = [&](int i) { return static_cast<uint8_t>(piece[i]); };
  for (int i = 0; i < n; ++i) ids[i] = byte_ids_[byte(i)];
  for (int i = 0; i + 1 < n; ++i) merges[i] = of_bytes_[byte(i) << 8 | byte(i + 1)];
  while (n > 1) {
    int best = 0;
    for (int i = 1; i + 1 < n; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNever) break;
    ids[best] = merges[best].id;
    --n;
    std::copy(ids + best + 2, ids + n + 1, ids + best + 1);
    if (best + 1 < n) {
      std::copy(merges + best + 2, merges + n, merges + best + 1);
      merges[best] = find(ids[best], ids[best + 1]);
    }
    if (best > 0) merges[best - 1] = find(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids, ids + n);
}

// A piece's symbols as a linked list; id -1 marks those that were merged into their left neighbour.
struct Bpe::Symbol {
  int32_t id, previous, next;
};

// A merge that was possible when it was queued: it still is, if both symbols are what they were.
struct Bpe::Candidate {
  uint32_t rank;
  int32_t at;
  int32_t left, right;                            // ids
  bool operator<(const Candidate& other) const {  // std::priority_queue pops the largest
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

void Bpe::merge_long(std::string_view piece, std::vector<int32_t>& out) const {
  const int32_t n = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(n);
  std::vector<Candidate> queued;
  const auto byte = [&](int i) { return static_cast<uint8_t>(piece[i]); };
  for (int32_t i = 0; i < n; ++i) symbols[i] = {byte_ids_[byte(i)], i - 1, i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i + 1 < n; ++i)
    if (const Merge m = of_bytes_[byte(i) << 8 | byte(i + 1)]; m.rank != kNever)
      queued.push_back({m.rank, i, symbols[i].id, symbols[i + 1].id});
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(queued));
  const auto offer = [&](int32_t at) {
    const Symbol& s = symbols[at];
    if (const Merge m = find(s.id, symbols[s.next].id); m.rank != kNever)
      queue.push({m.rank, at, s.id, symbols[s.next].id});
  };
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol& s = symbols[c.at];
    if (s.id != c.left || s.next < 0 || symbols[s.next].id != c.right) continue;
    Symbol& gone = symbols[s.next];
    s.id = find(c.left, c.right).id;
    s.next = gone.next;
    gone.id = -1;
    if (s.next >= 0) symbols[s.next].previous = c.at, offer(c.at);
    if (s.previous >= 0) offer(s.previous);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace lathe
