#include "cache/sequence_memory.h"

#include <algorithm>

#include "ops/kda_replay/kda_replay.h"

namespace lathe {

const char* segment_kind_name(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kLatentPage:
      return "latent_page";
    case SegmentKind::kIndexPage:
      return "index_page";
    case SegmentKind::kState:
      return "state";
    case SegmentKind::kConvRing:
      return "conv_ring";
    case SegmentKind::kOpenRows:
      return "open_rows";
    case SegmentKind::kReplayKeys:
      return "replay_keys";
    case SegmentKind::kReplayD:
      return "replay_d";
    case SegmentKind::kReplayGates:
      return "replay_gates";
    case SegmentKind::kHiddenRow:
      return "hidden_row";
  }
  return "?";
}

namespace {

// Sizes of one item of each kind, in elements.
struct ItemSizes {
  int64_t latent, index, open, state, conv, ring_key, ring_d, ring_gate;
  explicit ItemSizes(const MemoryShape& s)
      : latent(int64_t{s.page_tokens} * s.latent),
        index(int64_t{s.page_tokens} / s.kpool * s.index_dim),
        open(int64_t{s.open_ring()} * 2 * s.index_dim),
        state(int64_t{s.kda_heads} * s.kda_v * s.kda_k),
        conv(s.conv_ring() * s.kda_channels()),
        ring_key(int64_t{s.kda_heads} * s.replay_length * s.kda_k),
        ring_d(int64_t{s.kda_heads} * s.replay_length * s.kda_v),
        ring_gate(int64_t{s.kda_heads} * s.replay_length * s.kda_k) {}
};

int64_t indexed_layers(const MemoryShape& s) { return std::count(s.has_index.begin(), s.has_index.end(), true); }

}  // namespace

int64_t SequenceMemory::slot_bytes(const MemoryShape& s) {
  const ItemSizes size(s);
  const int64_t rows = dtype_bytes(s.rows), replay = dtype_bytes(s.replay);
  const int64_t kda = size.state * 4 + size.conv * rows + (size.ring_key + size.ring_d) * replay + size.ring_gate * 4;
  return s.kda_layers * kda + indexed_layers(s) * size.open * rows + s.hidden * rows;
}

int64_t SequenceMemory::page_bytes(const MemoryShape& s) {
  const ItemSizes size(s);
  return (s.sparse_layers() * size.latent + indexed_layers(s) * size.index) * dtype_bytes(s.rows);
}

Result<Pool> SequenceMemory::make_pool(int64_t items, int64_t item_size, DType dtype) {
  LATHE_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device_, items * item_size * dtype_bytes(dtype)));
  buffers_.push_back(std::move(buffer));
  return Pool{.data = buffers_.back().as(), .dtype = dtype, .items = items, .item_size = item_size};
}

Result<std::unique_ptr<SequenceMemory>> SequenceMemory::create(Device& device, const MemoryShape& shape, int slots,
                                                               int pages) {
  LATHE_CHECK(slots > 0 && pages >= 0 && shape.page_tokens % shape.kpool == 0);
  std::unique_ptr<SequenceMemory> m(new SequenceMemory(device, shape));
  const ItemSizes size(shape);
  for (int l = 0; l < shape.sparse_layers(); ++l) {
    const bool indexed = shape.has_index[l];
    LATHE_ASSIGN(Pool latent, m->make_pool(pages, size.latent, shape.rows));
    LATHE_ASSIGN(Pool index, m->make_pool(indexed ? pages : 0, size.index, shape.rows));
    LATHE_ASSIGN(Pool open, m->make_pool(indexed ? slots : 0, size.open, shape.rows));
    m->latent_.push_back(latent), m->index_.push_back(index), m->open_.push_back(open);
  }
  for (int l = 0; l < shape.kda_layers; ++l) {
    LATHE_ASSIGN(Pool state, m->make_pool(slots, size.state, DType::kF32));
    LATHE_ASSIGN(Pool conv, m->make_pool(slots, size.conv, shape.rows));
    m->state_.push_back(state), m->conv_.push_back(conv);
    if (!shape.replay_length) continue;
    LATHE_ASSIGN(Pool key, m->make_pool(slots, size.ring_key, shape.replay));
    LATHE_ASSIGN(Pool d, m->make_pool(slots, size.ring_d, shape.replay));
    LATHE_ASSIGN(Pool gate, m->make_pool(slots, size.ring_gate, DType::kF32));
    m->ring_key_.push_back(key), m->ring_d_.push_back(d), m->ring_gate_.push_back(gate);
  }
  LATHE_ASSIGN(m->hidden_, m->make_pool(shape.hidden ? slots : 0, shape.hidden, shape.rows));
  LATHE_ASSIGN(m->cursors_on_device_, DeviceBuffer::allocate(device, slots * 4));
  m->cursor_.assign(slots, 0);
  for (int i = slots - 1; i >= 0; --i) m->free_slots_.push_back(i);
  for (int i = pages - 1; i >= 0; --i) m->free_pages_.push_back(i);
  m->page_users_.assign(pages, 0);
  return m;
}

const SequenceMemory::Sequence& SequenceMemory::at(SequenceId id) const {
  LATHE_CHECK(id >= 0 && id < static_cast<int>(sequences_.size()) && sequences_[id].slot >= 0);
  return sequences_[id];
}

Result<SequenceId> SequenceMemory::open() {
  if (free_slots_.empty()) return exhausted("no free sequence slot: all {} are in use", cursor_.size());
  SequenceId id;
  if (free_ids_.empty()) {
    id = static_cast<SequenceId>(sequences_.size());
    sequences_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  sequences_[id].slot = free_slots_.back();
  free_slots_.pop_back();
  cursor_[sequences_[id].slot] = 0;
  return id;
}

void SequenceMemory::drop_page(int32_t page) {
  LATHE_CHECK(page_users_[page] > 0);
  if (--page_users_[page] == 0) free_pages_.push_back(page);
}

void SequenceMemory::close(SequenceId id) {
  Sequence& s = at(id);
  for (int32_t page : s.pages) drop_page(page);
  free_slots_.push_back(s.slot);
  s = Sequence{};
  free_ids_.push_back(id);
}

void SequenceMemory::copy_item(const Pool& pool, int64_t to, int64_t from) {
  device_.copy(pool.at(to), pool.at(from), pool.item_size * dtype_bytes(pool.dtype));
}

std::vector<const Pool*> SequenceMemory::page_pools() const {
  std::vector<const Pool*> pools;
  for (const auto* list : {&latent_, &index_})
    for (const Pool& p : *list)
      if (p.items) pools.push_back(&p);
  return pools;
}

std::vector<const Pool*> SequenceMemory::slot_pools() const {
  std::vector<const Pool*> pools;
  for (const auto* list : {&state_, &conv_, &open_, &ring_key_, &ring_d_, &ring_gate_})
    for (const Pool& p : *list)
      if (p.items) pools.push_back(&p);
  if (hidden_.items) pools.push_back(&hidden_);
  return pools;
}

Status SequenceMemory::reserve(SequenceId id, int tokens) {
  Sequence& s = at(id);
  const int page_tokens = shape_.page_tokens;
  const size_t wanted = (static_cast<size_t>(std::max(tokens, 0)) + page_tokens - 1) / page_tokens;
  // The MTP block lags by one row: it may still write the last position.
  const size_t first_written = std::max(s.position - (shape_.mtp ? 1 : 0), 0) / page_tokens;
  std::vector<size_t> shared;  // pages that will be written but have other users, too
  for (size_t i = first_written; i < std::min(wanted, s.pages.size()); ++i)
    if (page_users_[s.pages[i]] > 1) shared.push_back(i);
  const size_t fresh = wanted > s.pages.size() ? wanted - s.pages.size() : 0;
  if (fresh + shared.size() > free_pages_.size())
    return exhausted("{} tokens need {} more cache pages, {} are free", tokens, fresh + shared.size(),
                     free_pages_.size());
  auto take = [&] {
    const int32_t page = free_pages_.back();
    free_pages_.pop_back();
    page_users_[page] = 1;
    return page;
  };
  for (size_t i : shared) {
    const int32_t own = take();
    for (const Pool* pool : page_pools()) copy_item(*pool, own, s.pages[i]);
    drop_page(s.pages[i]);
    s.pages[i] = own;
  }
  for (size_t i = 0; i < fresh; ++i) s.pages.push_back(take());
  return Status::ok();
}

Result<SequenceId> SequenceMemory::fork(SequenceId id) {
  LATHE_ASSIGN(const SequenceId twin, open());
  const Sequence& from = at(id);
  Sequence& to = at(twin);
  to.position = from.position;
  // Also the unfinished page is shared; whoever writes it first takes a copy (reserve).
  const size_t used = (from.position + shape_.page_tokens - 1) / shape_.page_tokens;
  to.pages.assign(from.pages.begin(), from.pages.begin() + used);
  for (int32_t page : to.pages) ++page_users_[page];
  for (const Pool* pool : slot_pools()) copy_item(*pool, to.slot, from.slot);
  cursor_[to.slot] = cursor_[from.slot];
  return twin;
}

Status SequenceMemory::rollback(SequenceId id, int position) {
  Sequence& s = at(id);
  if (position > s.position || position < 0) return invalid("rollback to {} of a sequence at {}", position, s.position);
  if (position < state_position(id))
    return invalid(
        "rollback to {}: the recurrent state stands at {} and can't go back; fork or take a checkpoint first", position,
        state_position(id));
  cursor_[s.slot] -= s.position - position;
  s.position = position;
  return Status::ok();
}

void SequenceMemory::advance(SequenceId id, int rows) {
  LATHE_CHECK(ring_is_empty(id));
  at(id).position += rows;
}

void SequenceMemory::advance_in_ring(SequenceId id, int rows, int written) {
  Sequence& s = at(id);
  LATHE_CHECK(rows >= 0 && rows <= written);
  cursor_[s.slot] = replay_base(cursor_[s.slot], written, shape_.replay_length) + rows;
  s.position += rows;
}

void SequenceMemory::folded(SequenceId id) { cursor_[at(id).slot] = 0; }

KdaMemory SequenceMemory::kda(int layer) const {
  return {.state = state_[layer], .conv = conv_[layer], .ring = shape_.conv_ring()};
}

Array<const int32_t> SequenceMemory::upload_cursors() {
  const int64_t count = static_cast<int64_t>(cursor_.size());
  device_.to_device(cursors_on_device_.as(), cursor_.data(), count * 4);
  return {cursors_on_device_.as<int32_t>(), count};
}

std::vector<Segment> SequenceMemory::segments(SequenceId id) const {
  const Sequence& s = at(id);
  std::vector<Segment> list;
  auto by_page = [&](SegmentKind kind, const std::vector<Pool>& pools) {
    for (size_t layer = 0; layer < pools.size(); ++layer)
      for (size_t i = 0; pools[layer].items && i < s.pages.size(); ++i)
        list.push_back({kind, static_cast<int>(layer), static_cast<int64_t>(i) * shape_.page_tokens,
                        pools[layer].at(s.pages[i]), pools[layer].item_bytes()});
  };
  auto by_slot = [&](SegmentKind kind, const std::vector<Pool>& pools) {
    for (size_t layer = 0; layer < pools.size(); ++layer)
      if (pools[layer].items)
        list.push_back({kind, static_cast<int>(layer), -1, pools[layer].at(s.slot), pools[layer].item_bytes()});
  };
  by_page(SegmentKind::kLatentPage, latent_);
  by_page(SegmentKind::kIndexPage, index_);
  by_slot(SegmentKind::kState, state_);
  by_slot(SegmentKind::kConvRing, conv_);
  by_slot(SegmentKind::kOpenRows, open_);
  by_slot(SegmentKind::kReplayKeys, ring_key_);
  by_slot(SegmentKind::kReplayD, ring_d_);
  by_slot(SegmentKind::kReplayGates, ring_gate_);
  by_slot(SegmentKind::kHiddenRow, {hidden_});
  return list;
}

}  // namespace lathe
