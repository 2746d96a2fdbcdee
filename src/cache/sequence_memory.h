#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/view.h"
#include "cache/memory_shape.h"
#include "ops/kda_prefill/kda_layer.h"

namespace lathe {

// What a sequence consists of: one entry a piece of device memory. Export, import, host tier and checksums walk the
// list of segments, so a kind that is added here can't be forgotten there.
enum class SegmentKind {
  kLatentPage,
  kIndexPage,
  kState,
  kConvRing,
  kOpenRows,
  kReplayKeys,
  kReplayD,
  kReplayGates,
  kHiddenRow,
};
const char* segment_kind_name(SegmentKind kind);

struct Segment {
  SegmentKind kind;
  int layer;               // index among the layers of its kind of mixer
  int64_t first_position;  // of a page; -1 for what belongs to a slot
  void* address;
  int64_t bytes;
};

using SequenceId = int;

// Memory of all sequences, all kinds together: pages of the sparse layers (one table a sequence, a page id is valid in
// every layer's pool), and a slot with everything else. A sequence is forked, rolled back and closed in all kinds or in
// none. One thread, the step loop, calls it; kernels hold only indices.
class SequenceMemory {
 public:
  // `slots` sequences at once, `pages` pages for all of them. Memory is touched as it is used.
  static Result<std::unique_ptr<SequenceMemory>> create(Device& device, const MemoryShape& shape, int slots, int pages);
  SequenceMemory(const SequenceMemory&) = delete;

  // -- a sequence's life
  Result<SequenceId> open();  // exhausted when no slot is free
  void close(SequenceId id);
  // Pages so that positions below `tokens` may be written; shared pages that would be written become own copies.
  // All or nothing: on `exhausted` nothing has changed.
  Status reserve(SequenceId id, int tokens);
  // A second sequence that goes on from the same position: slots are copied, full pages shared.
  Result<SequenceId> fork(SequenceId id);
  // Forgets positions from `position` on. Possible down to state_position(id): the KDA state itself can't go back.
  Status rollback(SequenceId id, int position);

  // After a forward pass succeeded: `rows` more positions count. `in_ring`: they lie in the replay ring; `written` is
  // how many records that step wrote (>= rows), for the rule of ops/kda_replay's replay_base.
  void advance(SequenceId id, int rows);
  void advance_in_ring(SequenceId id, int rows, int written);
  // After the ring was folded into the state by kda_replay's flush.
  void folded(SequenceId id);

  int position(SequenceId id) const { return at(id).position; }
  int state_position(SequenceId id) const { return at(id).position - cursor_[at(id).slot]; }
  int slot(SequenceId id) const { return at(id).slot; }
  const std::vector<int32_t>& pages(SequenceId id) const { return at(id).pages; }
  bool ring_is_empty(SequenceId id) const { return cursor_[at(id).slot] == 0; }

  std::vector<Segment> segments(SequenceId id) const;

  // -- what operators are given
  const MemoryShape& shape() const { return shape_; }
  KdaMemory kda(int kda_layer) const;
  Pool latent_pages(int sparse_layer) const { return latent_[sparse_layer]; }
  Pool index_pages(int sparse_layer) const { return index_[sparse_layer]; }
  Pool open_rows(int sparse_layer) const { return open_[sparse_layer]; }
  Pool replay_keys(int kda_layer) const { return ring_key_[kda_layer]; }
  Pool replay_d(int kda_layer) const { return ring_d_[kda_layer]; }
  Pool replay_gates(int kda_layer) const { return ring_gate_[kda_layer]; }
  Pool hidden_rows() const { return hidden_; }
  // Committed records of each slot, on the device as of now (enqueued).
  Array<const int32_t> upload_cursors();

  int free_pages() const { return static_cast<int>(free_pages_.size()); }
  int free_slots() const { return static_cast<int>(free_slots_.size()); }
  static int64_t slot_bytes(const MemoryShape& shape);
  static int64_t page_bytes(const MemoryShape& shape);  // over all layers

 private:
  struct Sequence {
    int slot = -1, position = 0;
    std::vector<int32_t> pages;
  };
  explicit SequenceMemory(Device& device, const MemoryShape& shape) : device_(device), shape_(shape) {}

  const Sequence& at(SequenceId id) const;
  Sequence& at(SequenceId id) { return const_cast<Sequence&>(std::as_const(*this).at(id)); }
  Result<Pool> make_pool(int64_t items, int64_t item_size, DType dtype);
  std::vector<const Pool*> slot_pools() const;
  std::vector<const Pool*> page_pools() const;
  void copy_item(const Pool& pool, int64_t to, int64_t from);
  void drop_page(int32_t page);

  Device& device_;
  MemoryShape shape_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<Pool> latent_, index_, open_;                         // by sparse layer
  std::vector<Pool> state_, conv_, ring_key_, ring_d_, ring_gate_;  // by KDA layer
  Pool hidden_;
  DeviceBuffer cursors_on_device_;

  std::vector<Sequence> sequences_;
  std::vector<SequenceId> free_ids_;
  std::vector<int> free_slots_;  // a stack: the warmest slot goes out first
  std::vector<int32_t> free_pages_, page_users_;
  std::vector<int32_t> cursor_;  // by slot
};

}  // namespace lathe
