#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
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
// none. A frozen sequence never moves again: others are forked from it. It lies in a checkpoint slot, which has no
// replay ring. One thread, the step loop, calls it; kernels hold only indices.
class SequenceMemory {
 public:
  // `slots` sequences at once, `pages` pages for all of them, and `checkpoints` frozen ones. Memory is touched as it is
  // used.
  static Result<std::unique_ptr<SequenceMemory>> create(Device& device, const MemoryShape& shape, int slots, int pages,
                                                        int checkpoints = 0);
  SequenceMemory(const SequenceMemory&) = delete;

  // -- a sequence's life
  Result<SequenceId> open();  // exhausted when no slot is free
  void close(SequenceId id);
  // Pages so that positions below `tokens` may be written; shared pages that would be written become own copies.
  // All or nothing: on `exhausted` nothing has changed.
  Status reserve(SequenceId id, int tokens);
  // The same where rows from `first` on will be written.
  Status reserve_rows(SequenceId id, int first, int tokens);
  // A second sequence that goes on from the same position: slots are copied, pages shared until somebody writes them.
  Result<SequenceId> fork(SequenceId id);
  // A frozen twin, or the sequence itself frozen: pages are shared or handed over, what the slot holds is copied into a
  // checkpoint slot. The ring must be folded. exhausted: no checkpoint slot; nothing has changed.
  Result<SequenceId> freeze_copy(SequenceId id);
  Result<SequenceId> freeze(SequenceId id);  // on success `id` is closed
  // A frozen sequence for memory that comes from elsewhere. contents[i] names page i (page_content), 0: no name; a page
  // that holds just that is shared, for others a free one is taken and gets the name: the caller writes it, and the
  // slot. `fresh` tells which.
  Result<SequenceId> open_frozen(int position, int mtp_rows, const std::vector<int64_t>& contents,
                                 std::vector<bool>& fresh);
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

  bool is_frozen(SequenceId id) const { return at(id).slot >= slots_; }

  // Rows [0, n) of the MTP block's caches are final. The block lags: row t needs token t + 1, so n is position - 1, or
  // position where the token after the last is already known. Whoever runs the block says how far it got.
  int mtp_rows(SequenceId id) const { return at(id).mtp_rows; }
  void set_mtp_rows(SequenceId id, int rows);
  // The text tower's hidden row of the last position, and of the last position before the last pass: [1, hidden].
  Rows last_hidden(SequenceId id) const;
  Rows hidden_before(SequenceId id) const;

  std::vector<Segment> segments(SequenceId id) const;
  // Names what a page of a frozen sequence holds: as long as the name is the same, so are the bytes. 0: it has no name,
  // somebody may be writing it.
  int64_t page_content(int32_t page) const { return page_content_[page]; }
  bool holds(int64_t content) const { return page_of_content_.contains(content); }
  int page_users(int32_t page) const { return page_users_[page]; }

  // -- what operators are given
  const MemoryShape& shape() const { return shape_; }
  KdaMemory kda(int kda_layer) const;
  Pool latent_pages(int sparse_layer) const { return latent_[sparse_layer]; }
  Pool index_pages(int sparse_layer) const { return index_[sparse_layer]; }
  Pool open_rows(int sparse_layer) const { return running(open_[sparse_layer]); }
  Pool replay_keys(int kda_layer) const { return ring_key_[kda_layer]; }
  Pool replay_d(int kda_layer) const { return ring_d_[kda_layer]; }
  Pool replay_gates(int kda_layer) const { return ring_gate_[kda_layer]; }
  // Committed records of each slot, on the device as of now (enqueued).
  Array<const int32_t> upload_cursors();

  int free_pages() const { return static_cast<int>(free_pages_.size()); }
  int free_slots() const { return static_cast<int>(free_slots_.size()); }
  int free_checkpoints() const { return static_cast<int>(free_checkpoints_.size()); }
  int slots() const { return slots_; }
  int pages() const { return static_cast<int>(page_users_.size()); }
  int checkpoints() const { return static_cast<int>(cursor_.size()) - slots_; }
  static int64_t slot_bytes(const MemoryShape& shape);
  static int64_t checkpoint_bytes(const MemoryShape& shape);  // a slot without ring
  static int64_t page_bytes(const MemoryShape& shape);        // over all layers

 private:
  struct Sequence {
    int slot = -1, position = 0, mtp_rows = 0;
    std::vector<int32_t> pages;
  };
  explicit SequenceMemory(Device& device, const MemoryShape& shape) : device_(device), shape_(shape) {}

  const Sequence& at(SequenceId id) const;
  Sequence& at(SequenceId id) { return const_cast<Sequence&>(std::as_const(*this).at(id)); }
  Result<Pool> make_pool(int64_t items, int64_t item_size, DType dtype);
  // The one list of all kinds: copies and segments follow it.
  enum class Where { kPage, kSlot, kRing };
  struct Kind {
    SegmentKind kind;
    Where where;
    const std::vector<Pool>* pools;  // by layer; of no items where a layer hasn't this kind
  };
  std::array<Kind, 9> kinds() const;
  void copy_items(Where where, int64_t to, int64_t from);
  int32_t take_page();
  void drop_page(int32_t page);
  void name_page(int32_t page, int64_t content);
  SequenceId new_id();
  // A sequence like `from` in another slot, which it takes from `free`.
  SequenceId twin(const Sequence& from, std::vector<int>& free);
  Rows hidden_row(SequenceId id, int which) const;
  Pool running(Pool pool) const;

  Device& device_;
  MemoryShape shape_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<Pool> latent_, index_, open_;                         // by sparse layer
  std::vector<Pool> state_, conv_, ring_key_, ring_d_, ring_gate_;  // by KDA layer
  std::vector<Pool> hidden_;                                        // one
  DeviceBuffer cursors_on_device_;

  std::vector<Sequence> sequences_;
  std::vector<SequenceId> free_ids_;
  int slots_ = 0;                // checkpoint slots are numbered after these
  std::vector<int> free_slots_;  // a stack: the warmest slot goes out first
  std::vector<int> free_checkpoints_;
  std::vector<int32_t> free_pages_, page_users_;
  std::vector<int64_t> page_content_;
  std::unordered_map<int64_t, int32_t> page_of_content_;
  int64_t contents_named_ = 0;
  std::vector<int32_t> cursor_;  // by slot
};

}  // namespace lathe
