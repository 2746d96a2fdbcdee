#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_file.h"

namespace lathe {

// Which bytes each id stands for, and back. Entries of the model that are spelled in the byte alphabet can be found by
// their bytes; added tokens, and entries spelled otherwise, only decode.
class Vocabulary {
 public:
  static Result<Vocabulary> build(const TokenizerFile& file);

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // 1 + the largest id
  bool contains(int32_t id) const { return id >= 0 && id < size() && entries_[id].kind != kNone; }
  std::string_view bytes(int32_t id) const {  // "" where there is no such id
    return contains(id) ? std::string_view(bytes_).substr(entries_[id].begin, entries_[id].bytes) : std::string_view();
  }
  bool is_raw(int32_t id) const {
    return contains(id) && entries_[id].kind == kRaw;
  }  // not spelled in the byte alphabet
  bool is_special(int32_t id) const { return id >= 0 && id < size() && entries_[id].special; }
  bool is_added(int32_t id) const { return id >= 0 && id < size() && entries_[id].added; }

  int32_t find(std::string_view bytes) const;          // entry of the model, or -1
  int32_t find_added(std::string_view content) const;  // added token, or -1
  const std::vector<AddedToken>& added() const { return added_; }

 private:
  enum Kind : uint8_t { kNone, kBytes, kRaw };
  struct Entry {
    uint32_t begin = 0;
    uint32_t bytes = 0;
    Kind kind = kNone;
    bool added = false, special = false;
  };

  Status put(const TokenizerFile& file, const std::string& field, std::string_view spelling, int32_t id);
  void index();

  std::string bytes_;
  std::vector<Entry> entries_;  // by id
  std::vector<int32_t> slots_;  // open addressing over the model's entries, by hash of their bytes
  std::vector<AddedToken> added_;
};

}  // namespace lathe
