#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_file.h"
#include "text/vocabulary.h"

namespace lathe {

// Byte-pair merging of one piece: of all neighbours that may merge, the pair that the file lists first does, the
// leftmost one among equals, until none may. O(n log n) in the length of the piece, whatever it holds.
class Bpe {
 public:
  // `vocabulary` outlives the Bpe.
  static Result<Bpe> build(const TokenizerFile& file, const Vocabulary& vocabulary);

  void encode(std::string_view piece, const Vocabulary& vocabulary, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    uint32_t rank = kNever;
    int32_t id = -1;
  };
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr uint32_t kNever = UINT32_MAX;
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Symbol;
  struct Candidate;

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Merge find(int32_t left, int32_t right) const;
  void put(int32_t left, int32_t right, Merge merge);
  void merge_short(std::string_view piece, std::vector<int32_t>& out) const;
  void merge_long(std::string_view piece, std::vector<int32_t>& out) const;

  std::vector<Slot> slots_;      // open addressing by pair of ids
  std::vector<Merge> of_bytes_;  // [256 * 256], the merges of two single bytes
  int32_t byte_ids_[256];
  bool whole_first_ = false;  // ignore_merges
};

}  // namespace lathe
