#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/byte_hash.h"

namespace lathe {

// Ids of pieces met lately. Direct-mapped, an entry a cache line: what doesn't fit isn't kept, what collides is
// replaced.
class PieceCache {
 public:
  // 2^15 lines, 2 MB: about a core's second-level cache.
  PieceCache() : entries_(1 << 15) {}

  static bool may_hold(std::string_view piece) { return piece.size() <= sizeof Entry{}.bytes; }

  // Empty: not there.
  std::span<const int32_t> find(std::string_view piece, uint64_t hash) const {
    const Entry& e = entries_[hash & (entries_.size() - 1)];
    if (e.num_bytes != piece.size() || std::memcmp(e.bytes, piece.data(), piece.size()) != 0) return {};
    return {e.ids, e.num_ids};
  }
  void put(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    Entry& e = entries_[hash & (entries_.size() - 1)];
    if (ids.size() > std::size(e.ids)) return;
    e.num_bytes = static_cast<uint8_t>(piece.size());
    e.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(e.bytes, piece.data(), piece.size());
    std::memcpy(e.ids, ids.data(), ids.size_bytes());
  }

 private:
  struct alignas(64) Entry {
    uint8_t num_bytes = 0, num_ids = 0;
    char bytes[30];
    int32_t ids[8];
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
};

}  // namespace lathe
