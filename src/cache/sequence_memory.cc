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
  int64_t latent, index, open, state, conv, hidden, ring_key, ring_d, ring_gate;
  explicit ItemSizes(const MemoryShape& s)
      : latent(int64_t{s.page_tokens} * s.latent),
        index(int64_t{s.page_tokens} / s.kpool * s.index_dim),
        open(int64_t{s.open_ring()} * 2 * s.index_dim),
        state(int64_t{s.kda_heads} * s.kda_v * s.kda_k),
        conv(s.conv_ring() * s.kda_channels()),
        hidden(int64_t{2} * s.hidden),
        ring_key(int64_t{s.kda_heads} * s.replay_length * s.kda_k),
        ring_d(int64_t{s.kda_heads} * s.replay_length * s.kda_v),
        ring_gate(int64_t{s.kda_heads} * s.replay_length * s.kda_k) {}
};

int64_t indexed_layers(const MemoryShape& s) { return std::count(s.has_index.begin(), s.has_index.end(), true); }

}  // namespace

int64_t SequenceMemory::slot_bytes(const MemoryShape& s) {
  const ItemSizes size(s);
  const int64_t ring = (size.ring_key + size.ring_d) * dtype_bytes(s.replay) + size.ring_gate * 4;
  return checkpoint_bytes(s) + s.kda_layers * ring;
}

int64_t SequenceMemory::checkpoint_bytes(const MemoryShape& s) {
  const ItemSizes size(s);
  const int64_t rows = dtype_bytes(s.rows);
  return s.kda_layers * (size.state * 4 + size.conv * rows) + indexed_layers(s) * size.open * rows + size.hidden * rows;
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
                                                               int pages, int checkpoints) {
  LATHE_CHECK(slots > 0 && pages >= 0 && checkpoints >= 0 && shape.page_tokens % shape.kpool == 0);
  std::unique_ptr<SequenceMemory> m(new SequenceMemory(device, shape));
  const int all_slots = slots + checkpoints;
  const ItemSizes size(shape);
  for (int l = 0; l < shape.sparse_layers(); ++l) {
    const bool indexed = shape.has_index[l];
    LATHE_ASSIGN(Pool latent, m->make_pool(pages, size.latent, shape.rows));
    LATHE_ASSIGN(Pool index, m->make_pool(indexed ? pages : 0, size.index, shape.rows));
    LATHE_ASSIGN(Pool open, m->make_pool(indexed ? all_slots : 0, size.open, shape.rows));
    m->latent_.push_back(latent), m->index_.push_back(index), m->open_.push_back(open);
  }
  for (int l = 0; l < shape.kda_layers; ++l) {
    LATHE_ASSIGN(Pool state, m->make_pool(all_slots, size.state, DType::kF32));
    LATHE_ASSIGN(Pool conv, m->make_pool(all_slots, size.conv, shape.rows));
    m->state_.push_back(state), m->conv_.push_back(conv);
    if (!shape.replay_length) continue;
    LATHE_ASSIGN(Pool key, m->make_pool(slots, size.ring_key, shape.replay));
    LATHE_ASSIGN(Pool d, m->make_pool(slots, size.ring_d, shape.replay));
    LATHE_ASSIGN(Pool gate, m->make_pool(slots, size.ring_gate, DType::kF32));
    m->ring_key_.push_back(key), m->ring_d_.push_back(d), m->ring_gate_.push_back(gate);
  }
  LATHE_ASSIGN(Pool hidden, m->make_pool(shape.hidden ? all_slots : 0, size.hidden, shape.rows));
  m->hidden_.push_back(hidden);
  LATHE_ASSIGN(m->cursors_on_device_, DeviceBuffer::allocate(device, int64_t{4} * slots));
  m->slots_ = slots;
  m->cursor_.assign(all_slots, 0);
  for (int i = slots - 1; i >= 0; --i) m->free_slots_.push_back(i);
  for (int i = all_slots - 1; i >= slots; --i) m->free_checkpoints_.push_back(i);
  for (int i = pages - 1; i >= 0; --i) m->free_pages_.push_back(i);
  m->page_users_.assign(pages, 0);
  m->page_content_.assign(pages, 0);
  return m;
}

const SequenceMemory::Sequence& SequenceMemory::at(SequenceId id) const {
  LATHE_CHECK(id >= 0 && id < static_cast<int>(sequences_.size()) && sequences_[id].slot >= 0);
  return sequences_[id];
}

SequenceId SequenceMemory::new_id() {
  if (free_ids_.empty()) {
    sequences_.emplace_back();
    return static_cast<SequenceId>(sequences_.size()) - 1;
  }
  const SequenceId id = free_ids_.back();
  free_ids_.pop_back();
  return id;
}

Result<SequenceId> SequenceMemory::open() {
  if (free_slots_.empty()) return exhausted("no free sequence slot: all {} are in use", slots_);
  const SequenceId id = new_id();
  sequences_[id].slot = free_slots_.back();
  free_slots_.pop_back();
  cursor_[sequences_[id].slot] = 0;
  return id;
}

int32_t SequenceMemory::take_page() {
  const int32_t page = free_pages_.back();
  free_pages_.pop_back();
  page_users_[page] = 1;
  return page;
}

void SequenceMemory::drop_page(int32_t page) {
  LATHE_CHECK(page_users_[page] > 0);
  if (--page_users_[page] > 0) return;
  name_page(page, 0);
  free_pages_.push_back(page);
}

void SequenceMemory::name_page(int32_t page, int64_t content) {
  if (page_content_[page]) page_of_content_.erase(page_content_[page]);
  page_content_[page] = content;
  if (content) page_of_content_[content] = page;
}

void SequenceMemory::close(SequenceId id) {
  Sequence& s = at(id);
  for (int32_t page : s.pages) drop_page(page);
  (is_frozen(id) ? free_checkpoints_ : free_slots_).push_back(s.slot);
  s = Sequence{};
  free_ids_.push_back(id);
}

std::array<SequenceMemory::Kind, 9> SequenceMemory::kinds() const {
  return {{{SegmentKind::kLatentPage, Where::kPage, &latent_},
           {SegmentKind::kIndexPage, Where::kPage, &index_},
           {SegmentKind::kState, Where::kSlot, &state_},
           {SegmentKind::kConvRing, Where::kSlot, &conv_},
           {SegmentKind::kOpenRows, Where::kSlot, &open_},
           {SegmentKind::kReplayKeys, Where::kRing, &ring_key_},
           {SegmentKind::kReplayD, Where::kRing, &ring_d_},
           {SegmentKind::kReplayGates, Where::kRing, &ring_gate_},
           {SegmentKind::kHiddenRow, Where::kSlot, &hidden_}}};
}

void SequenceMemory::copy_items(Where where, int64_t to, int64_t from) {
  for (const Kind& k : kinds())
    if (k.where == where)
      for (const Pool& pool : *k.pools)
        if (pool.items) device_.copy(pool.at(to), pool.at(from), pool.item_bytes());
}

Status SequenceMemory::reserve(SequenceId id, int tokens) {
  // The MTP block lags by one row: it may still write the last position.
  return reserve_rows(id, std::max(at(id).position - (shape_.mtp ? 1 : 0), 0), tokens);
}

Status SequenceMemory::reserve_rows(SequenceId id, int first, int tokens) {
  LATHE_CHECK(!is_frozen(id) && first >= 0);
  Sequence& s = at(id);
  const int page_tokens = shape_.page_tokens;
  const size_t wanted = (static_cast<size_t>(std::max(tokens, 0)) + page_tokens - 1) / page_tokens;
  const size_t first_written = first / page_tokens;
  std::vector<size_t> shared;  // pages that will be written but have other users, too
  for (size_t i = first_written; i < std::min(wanted, s.pages.size()); ++i)
    if (page_users_[s.pages[i]] > 1) shared.push_back(i);
  const size_t fresh = wanted > s.pages.size() ? wanted - s.pages.size() : 0;
  if (fresh + shared.size() > free_pages_.size())
    return exhausted("{} tokens need {} more cache pages, {} are free", tokens, fresh + shared.size(),
                     free_pages_.size());
  for (size_t i : shared) {
    const int32_t own = take_page();
    copy_items(Where::kPage, own, s.pages[i]);
    drop_page(s.pages[i]);
    s.pages[i] = own;
  }
  for (size_t i = 0; i < fresh; ++i) s.pages.push_back(take_page());
  for (size_t i = first_written; i < wanted; ++i) name_page(s.pages[i], 0);
  return Status::ok();
}

SequenceId SequenceMemory::twin(const Sequence& original, std::vector<int>& free) {
  const Sequence from = original;  // new_id may move the original
  const SequenceId id = new_id();
  Sequence& to = sequences_[id];
  to.slot = free.back();
  free.pop_back();
  to.position = from.position, to.mtp_rows = from.mtp_rows;
  const size_t used = (from.position + shape_.page_tokens - 1) / shape_.page_tokens;
  to.pages.assign(from.pages.begin(), from.pages.begin() + static_cast<std::ptrdiff_t>(used));
  for (int32_t page : to.pages) ++page_users_[page];
  copy_items(Where::kSlot, to.slot, from.slot);
  cursor_[to.slot] = cursor_[from.slot];
  return id;
}

Result<SequenceId> SequenceMemory::fork(SequenceId id) {
  if (free_slots_.empty()) return exhausted("no free sequence slot: all {} are in use", slots_);
  const SequenceId to = twin(at(id), free_slots_);
  if (!ring_is_empty(id)) copy_items(Where::kRing, slot(to), slot(id));
  // The token that follows a frozen sequence isn't known: its last MTP row waits for it.
  if (is_frozen(id)) set_mtp_rows(to, std::min(mtp_rows(id), std::max(position(id) - 1, 0)));
  return to;
}

Result<SequenceId> SequenceMemory::freeze_copy(SequenceId id) {
  LATHE_CHECK(ring_is_empty(id) && !is_frozen(id));
  if (free_checkpoints_.empty()) return exhausted("no free checkpoint slot: all {} are in use", checkpoints());
  const SequenceId to = twin(at(id), free_checkpoints_);
  for (int32_t page : pages(to))
    if (page_content_[page] == 0) name_page(page, ++contents_named_);
  return to;
}

Result<SequenceId> SequenceMemory::freeze(SequenceId id) {
  LATHE_ASSIGN(const SequenceId frozen, freeze_copy(id));
  close(id);
  return frozen;
}

Result<SequenceId> SequenceMemory::open_frozen(int position, int mtp_rows, const std::vector<int64_t>& contents,
                                               std::vector<bool>& fresh) {
  LATHE_CHECK(static_cast<int>(contents.size()) == (position + shape_.page_tokens - 1) / shape_.page_tokens);
  if (free_checkpoints_.empty()) return exhausted("no free checkpoint slot: all {} are in use", checkpoints());
  fresh.clear();
  for (int64_t content : contents) fresh.push_back(content == 0 || !holds(content));
  const auto wanted = std::count(fresh.begin(), fresh.end(), true);
  if (wanted > free_pages())
    return exhausted("{} tokens need {} more cache pages, {} are free", position, wanted, free_pages());
  const SequenceId id = new_id();
  Sequence& s = sequences_[id];
  s.slot = free_checkpoints_.back();
  free_checkpoints_.pop_back();
  cursor_[s.slot] = 0;
  s.position = position;
  for (size_t i = 0; i < contents.size(); ++i) {
    s.pages.push_back(fresh[i] ? take_page() : page_of_content_.at(contents[i]));
    if (fresh[i])
      name_page(s.pages.back(), contents[i] ? contents[i] : ++contents_named_);
    else
      ++page_users_[s.pages.back()];
  }
  set_mtp_rows(id, mtp_rows);
  return id;
}

void SequenceMemory::set_mtp_rows(SequenceId id, int rows) {
  LATHE_CHECK(rows >= 0 && rows <= at(id).position);
  at(id).mtp_rows = rows;
}

Rows SequenceMemory::hidden_row(SequenceId id, int which) const {
  const int64_t width = shape_.hidden;
  return {.data = static_cast<char*>(hidden_[0].at(slot(id))) + which * width * dtype_bytes(shape_.rows),
          .dtype = shape_.rows,
          .rows = width ? 1 : 0,
          .width = width,
          .stride = width};
}

Rows SequenceMemory::last_hidden(SequenceId id) const { return hidden_row(id, 0); }
Rows SequenceMemory::hidden_before(SequenceId id) const { return hidden_row(id, 1); }

Status SequenceMemory::rollback(SequenceId id, int position) {
  Sequence& s = at(id);
  if (position > s.position || position < 0) return invalid("rollback to {} of a sequence at {}", position, s.position);
  if (position < state_position(id))
    return invalid(
        "rollback to {}: the recurrent state stands at {} and can't go back; fork or take a checkpoint first", position,
        state_position(id));
  cursor_[s.slot] -= s.position - position;
  if (position < s.position) s.mtp_rows = std::min(s.mtp_rows, std::max(position - 1, 0));
  s.position = position;
  return Status::ok();
}

void SequenceMemory::advance(SequenceId id, int rows) {
  LATHE_CHECK(ring_is_empty(id) && !is_frozen(id));
  at(id).position += rows;
}

void SequenceMemory::advance_in_ring(SequenceId id, int rows, int written) {
  Sequence& s = at(id);
  LATHE_CHECK(rows >= 0 && rows <= written && !is_frozen(id));
  cursor_[s.slot] = replay_base(cursor_[s.slot], written, shape_.replay_length) + rows;
  s.position += rows;
}

void SequenceMemory::folded(SequenceId id) { cursor_[at(id).slot] = 0; }

// Operators see the slots of running sequences only.
Pool SequenceMemory::running(Pool pool) const {
  pool.items = std::min<int64_t>(pool.items, slots_);
  return pool;
}

KdaMemory SequenceMemory::kda(int layer) const {
  return {.state = running(state_[layer]), .conv = running(conv_[layer]), .ring = shape_.conv_ring()};
}

Array<const int32_t> SequenceMemory::upload_cursors() {
  const int64_t count = slots_;
  device_.to_device(cursors_on_device_.as(), cursor_.data(), count * 4);
  return {cursors_on_device_.as<int32_t>(), count};
}

std::vector<Segment> SequenceMemory::segments(SequenceId id) const {
  const Sequence& s = at(id);
  std::vector<Segment> list;
  for (const Kind& k : kinds())
    for (size_t layer = 0; layer < k.pools->size(); ++layer) {
      const Pool& pool = (*k.pools)[layer];
      auto add = [&](int64_t first_position, int64_t item) {
        list.push_back({k.kind, static_cast<int>(layer), first_position, pool.at(item), pool.item_bytes()});
      };
      if (pool.items == 0) continue;
      if (k.where == Where::kPage)
        for (size_t i = 0; i < s.pages.size(); ++i) add(static_cast<int64_t>(i) * shape_.page_tokens, s.pages[i]);
      else if (k.where == Where::kSlot || !is_frozen(id))
        add(-1, s.slot);
    }
  return list;
}

}  // namespace lathe
