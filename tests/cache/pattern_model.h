#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/device.h"
#include "cache/sequence_memory.h"

namespace lathe::testing {

// A small shape with every kind of memory, pages of two pools, and an MTP block.
inline MemoryShape small_shape() {
  MemoryShape s;
  s.rows = DType::kF32;
  s.page_tokens = 8, s.kpool = 4, s.max_draft = 2;
  s.latent = 3, s.index_dim = 2;
  s.has_index = {true, false, true};  // the last is the MTP block's
  s.mtp = true;
  s.kda_layers = 2, s.kda_heads = 1, s.kda_k = 2, s.kda_v = 3, s.conv_width = 3;
  s.replay_length = 4;
  s.hidden = 5;
  return s;
}

// Stands in for a model: what it writes into each kind of memory at a position depends on all tokens up to there, and
// on kind and layer. So memory that belongs to another beginning, or was forgotten, is told by comparing bytes.
class PatternModel {
 public:
  PatternModel(Device& device, SequenceMemory& memory) : device_(device), memory_(memory) {}

  // Rows of positions [position, tokens.size()); tokens are all of the sequence.
  Status feed(SequenceId id, const std::vector<int32_t>& tokens) {
    const MemoryShape& s = memory_.shape();
    const int begin = memory_.position(id), end = static_cast<int>(tokens.size());
    LATHE_RETURN_IF_ERROR(memory_.reserve(id, end));
    const std::vector<uint64_t> names = names_of(tokens);
    for (int l = 0; l < s.sparse_layers(); ++l) {
      const bool mtp = l + 1 == s.sparse_layers();
      const int first = mtp ? std::max(begin - 1, 0) : begin, last = mtp ? end - 1 : end;
      for (int p = first; p < last; ++p) {
        const uint64_t name = names[p + 1 + mtp];
        put(latent_row(id, l, p), s.latent, name, 10 + l);
        if (!s.has_index[l]) continue;
        put(open_row(id, l, p), 2 * s.index_dim, name, 20 + l);
        if (p % s.kpool == s.kpool - 1) put(index_row(id, l, p / s.kpool), s.index_dim, name, 30 + l);
      }
    }
    for (int l = 0; l < s.kda_layers; ++l) {
      for (int p = begin; p < end; ++p) put(conv_row(id, l, p), s.kda_channels(), names[p + 1], 40 + l);
      put(state(id, l), state_size(), names[end], 50 + l);
    }
    put(memory_.last_hidden(id).data, s.hidden, names[end], 60);
    memory_.advance(id, end - begin);
    memory_.set_mtp_rows(id, std::max(end - 1, 0));
    return Status::ok();
  }

  // "" if the sequence's memory is that of `tokens` in all kinds, or which kind isn't.
  std::string difference(SequenceId id, const std::vector<int32_t>& tokens) const {
    const MemoryShape& s = memory_.shape();
    const int end = static_cast<int>(tokens.size());
    if (memory_.position(id) != end) return "position";
    if (memory_.mtp_rows(id) < end - 1) return "mtp rows";
    if (end == 0) return "";
    const std::vector<uint64_t> names = names_of(tokens);
    for (int l = 0; l < s.sparse_layers(); ++l) {
      const bool mtp = l + 1 == s.sparse_layers();
      const int last = mtp ? std::max(end - 1, 0) : end;
      for (int p = 0; p < last; ++p) {
        const uint64_t name = names[p + 1 + mtp];
        if (!holds(latent_row(id, l, p), s.latent, name, 10 + l)) return where("latent_page", l, p);
        if (!s.has_index[l]) continue;
        if (p >= last / s.kpool * s.kpool && !holds(open_row(id, l, p), 2 * s.index_dim, name, 20 + l))
          return where("open_rows", l, p);
        if (p % s.kpool == s.kpool - 1 && !holds(index_row(id, l, p / s.kpool), s.index_dim, name, 30 + l))
          return where("index_page", l, p);
      }
    }
    for (int l = 0; l < s.kda_layers; ++l) {
      for (int p = std::max(end - s.conv_width + 1, 0); p < end; ++p)
        if (!holds(conv_row(id, l, p), s.kda_channels(), names[p + 1], 40 + l)) return where("conv_ring", l, p);
      if (!holds(state(id, l), state_size(), names[end], 50 + l)) return where("state", l, end);
    }
    if (!holds(memory_.last_hidden(id).data, s.hidden, names[end], 60)) return "hidden_row";
    return "";
  }

  // Overwrites all segments of one kind.
  void spoil(SequenceId id, SegmentKind kind) {
    for (const Segment& s : memory_.segments(id))
      if (s.kind == kind) {
        const std::vector<char> junk(s.bytes, 0x5a);
        device_.to_device(s.address, junk.data(), s.bytes);
      }
  }

 private:
  // names[p]: of the first p tokens.
  static std::vector<uint64_t> names_of(const std::vector<int32_t>& tokens) {
    std::vector<uint64_t> names{0x9e3779b97f4a7c15u};
    for (int32_t t : tokens) {
      uint64_t x = (names.back() ^ static_cast<uint32_t>(t)) * 0xbf58476d1ce4e5b9u;
      names.push_back(x ^ x >> 29);
    }
    return names;
  }
  static std::string where(const char* kind, int layer, int position) {
    return std::string(kind) + " of layer " + std::to_string(layer) + " at " + std::to_string(position);
  }
  static std::vector<float> values(int64_t count, uint64_t name, int kind) {
    std::vector<float> v(count);
    for (int64_t i = 0; i < count; ++i) {
      uint64_t x = (name + 0x94d049bb133111ebu * (static_cast<uint64_t>(kind) * 1000 + i)) * 0xbf58476d1ce4e5b9u;
      v[i] = static_cast<float>(x >> 40);
    }
    return v;
  }
  void put(void* to, int64_t count, uint64_t name, int kind) {
    device_.to_device(to, values(count, name, kind).data(), count * 4);
  }
  bool holds(const void* from, int64_t count, uint64_t name, int kind) const {
    std::vector<float> found(count);
    if (!device_.to_host(found.data(), from, count * 4).is_ok()) return false;
    return std::memcmp(found.data(), values(count, name, kind).data(), count * 4) == 0;
  }

  // Addresses of rows: all are f32.
  static void* inside(const Pool& pool, int64_t item, int64_t row, int64_t width) {
    return static_cast<char*>(pool.at(item)) + row * width * 4;
  }
  // Operators see running slots only; a frozen sequence's slot is behind them in the same storage.
  void* latent_row(SequenceId id, int l, int p) const {
    const MemoryShape& s = memory_.shape();
    return inside(memory_.latent_pages(l), memory_.pages(id)[p / s.page_tokens], p % s.page_tokens, s.latent);
  }
  void* index_row(SequenceId id, int l, int pool) const {
    const MemoryShape& s = memory_.shape();
    const int per_page = s.page_tokens / s.kpool;
    return inside(memory_.index_pages(l), memory_.pages(id)[pool / per_page], pool % per_page, s.index_dim);
  }
  void* open_row(SequenceId id, int l, int p) const {
    const MemoryShape& s = memory_.shape();
    return inside(memory_.open_rows(l), memory_.slot(id), p % s.open_ring(), 2 * s.index_dim);
  }
  void* conv_row(SequenceId id, int l, int p) const {
    const MemoryShape& s = memory_.shape();
    return inside(memory_.kda(l).conv, memory_.slot(id), p % s.conv_ring(), s.kda_channels());
  }
  void* state(SequenceId id, int l) const { return memory_.kda(l).state.at(memory_.slot(id)); }
  int64_t state_size() const {
    const MemoryShape& s = memory_.shape();
    return int64_t{s.kda_heads} * s.kda_k * s.kda_v;
  }

  Device& device_;
  SequenceMemory& memory_;
};

inline std::vector<int32_t> first(const std::vector<int32_t>& tokens, int count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Tokens that look random and are the same for a seed.
inline std::vector<int32_t> some_tokens(int count, uint32_t seed) {
  std::vector<int32_t> tokens(count);
  for (int32_t& t : tokens) t = static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 9) % 500;
  return tokens;
}

inline constexpr SegmentKind kFrozenKinds[] = {SegmentKind::kLatentPage, SegmentKind::kIndexPage,
                                               SegmentKind::kState,      SegmentKind::kConvRing,
                                               SegmentKind::kOpenRows,   SegmentKind::kHiddenRow};

}  // namespace lathe::testing
