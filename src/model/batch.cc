#include "model/batch.h"

#include <algorithm>

namespace lathe {

namespace {

enum Phase { kPrefill, kDecode, kReplay };

Phase phase_of(const Run& run) { return run.in_ring ? kReplay : run.tokens.size() == 1 ? kDecode : kPrefill; }

// Segment r of n rows cut into `ranks` nearly equal pieces, the first ones longer.
int piece(int n, int ranks, int r) { return n / ranks + (r < n % ranks ? 1 : 0); }
int pieces_before(int n, int ranks, int r) { return n / ranks * r + std::min(r, n % ranks); }

// Collects integer arrays into the image of one block.
class Block {
 public:
  struct Part {
    int64_t offset, count;
  };
  explicit Block(std::vector<int32_t>& image) : image_(image) { image_.clear(); }
  Part add(const std::vector<int32_t>& values) {
    const Part part{static_cast<int64_t>(image_.size()), static_cast<int64_t>(values.size())};
    image_.insert(image_.end(), values.begin(), values.end());
    image_.resize((image_.size() + 15) / 16 * 16);
    return part;
  }
  Status upload(Device& device, DeviceBuffer& buffer) const {
    const int64_t bytes = static_cast<int64_t>(image_.size()) * 4 + 64;
    if (buffer.bytes() < bytes) {
      LATHE_ASSIGN(buffer, DeviceBuffer::allocate(device, std::max(bytes, 2 * buffer.bytes())));
    }
    device.to_device(buffer.as(), image_.data(), static_cast<int64_t>(image_.size()) * 4);
    return Status::ok();
  }

 private:
  std::vector<int32_t>& image_;
};

struct PhaseParts {
  Block::Part start, past, slot, before;
};

}  // namespace

int Batch::segment_rows(int i, int r) const { return cut ? piece(total_rows[i], ranks, r) : total_rows[i]; }

Result<std::unique_ptr<Batch>> Batch::build(Device& device, const std::vector<Run>& runs, SequenceMemory& memory,
                                            const Partition& partition) {
  return build_at(device, runs, {}, memory, partition);
}

Result<std::unique_ptr<Batch>> Batch::build_at(Device& device, const std::vector<Run>& runs,
                                               const std::vector<int>& past, SequenceMemory& memory,
                                               const Partition& partition) {
  auto b = std::make_unique<Batch>();
  LATHE_RETURN_IF_ERROR(b->rebuild(device, runs, past, memory, partition));
  return b;
}

void Batch::Lists::clear() {
  for (auto* list : {&token, &feature, &start, &past, &fresh_start, &fresh_past, &slot, &table, &logit_row})
    list->clear();
  for (Phase& p : phase)
    for (auto* list : {&p.start, &p.past, &p.slot, &p.before}) list->clear();
  start.push_back(0), fresh_start.push_back(0);
}

Status Batch::rebuild(Device& device, const std::vector<Run>& runs, const std::vector<int>& past,
                      SequenceMemory& memory, const Partition& partition) {
  positions_ = past;
  if (past.empty())
    for (const Run& r : runs) {
      if (!r.in_ring && !memory.ring_is_empty(r.sequence))
        return internal("sequence {} must be folded before a pass without ring", r.sequence);
      positions_.push_back(memory.position(r.sequence));
    }
  LATHE_RETURN_IF_ERROR(begin(runs, memory, partition));
  for (size_t i = 0; i < order.size(); ++i)
    add(runs[order[i]], static_cast<int>(i), positions_[order[i]], memory, partition);
  rows = lists_.start.back(), all_rows = lists_.fresh_start.back();
  return upload(device, memory);
}

// Order and what holds for all.
Status Batch::begin(const std::vector<Run>& runs, SequenceMemory& memory, const Partition& partition) {
  order.clear(), local_rows.clear(), total_rows.clear(), logits_by_sequence.clear();
  lists_.clear();
  prefill = decode = replay = {};
  for (const Phase phase : {kPrefill, kDecode, kReplay})
    for (size_t i = 0; i < runs.size(); ++i)
      if (phase_of(runs[i]) == phase) order.push_back(static_cast<int>(i));
  const bool prefill_only = std::all_of(runs.begin(), runs.end(), [](const Run& r) { return !r.in_ring; });
  const bool any_long = std::any_of(runs.begin(), runs.end(), [](const Run& r) { return r.tokens.size() > 1; });
  cut = partition.is(Parallel::kContext) && any_long;
  ranks = partition.size;
  if (cut && !prefill_only) return invalid("--cut cp: a batch of prefills can't hold replay rows");
  table_stride = 0;
  any_feature_ = false;
  for (const Run& r : runs) {
    table_stride = std::max<int64_t>(table_stride, static_cast<int64_t>(memory.pages(r.sequence).size()));
    any_feature_ |= !r.features.empty();
  }
  return Status::ok();
}

void Batch::add(const Run& run, int sequence, int position, SequenceMemory& memory, const Partition& partition) {
  Lists& to = lists_;
  const int total = static_cast<int>(run.tokens.size());
  LATHE_CHECK(run.features.empty() || run.features.size() == run.tokens.size());
  LATHE_CHECK(static_cast<int64_t>(position) + total <=
              static_cast<int64_t>(memory.pages(run.sequence).size()) * memory.shape().page_tokens);
  const int before = cut ? pieces_before(total, ranks, partition.rank) : 0;
  const int local = cut ? piece(total, ranks, partition.rank) : total;
  // Under a cut every run goes through the scan, also single rows.
  const Phase phase = cut ? kPrefill : phase_of(run);
  PhaseRows* const phases[3] = {&prefill, &decode, &replay};
  PhaseRows& p = *phases[phase];
  Lists::Phase& own = to.phase[phase];
  if (own.start.empty()) {
    p.first_row = static_cast<int64_t>(to.token.size());
    p.first_sequence = sequence;
    own.start.push_back(0);
  }
  for (int t = before; t < before + local; ++t) {
    to.token.push_back(run.tokens[t]);
    if (any_feature_) to.feature.push_back(run.features.empty() ? -1 : run.features[t]);
  }
  const int wanted = run.logits_of_last < 0 ? total : std::min(run.logits_of_last, total);
  for (int t = total - wanted; t < total; ++t) to.logit_row.push_back(to.fresh_start.back() + t);
  logits_by_sequence.push_back(wanted);
  local_rows.push_back(local), total_rows.push_back(total);
  to.start.push_back(to.start.back() + local), to.past.push_back(position + before);
  to.fresh_start.push_back(to.fresh_start.back() + total), to.fresh_past.push_back(position);
  to.slot.push_back(memory.slot(run.sequence));
  p.rows += local;
  own.start.push_back(own.start.back() + local);
  own.past.push_back(to.past.back());
  own.before.push_back(position);
  own.slot.push_back(to.slot.back());
  const std::vector<int32_t>& pages = memory.pages(run.sequence);
  to.table.insert(to.table.end(), pages.begin(), pages.end());
  to.table.resize((to.slot.size()) * static_cast<size_t>(table_stride), -1);
}

Status Batch::upload(Device& device, SequenceMemory& memory) {
  Block block(image_);
  const Lists& from = lists_;
  const auto p_token = block.add(from.token), p_feature = block.add(from.feature), p_start = block.add(from.start),
             p_past = block.add(from.past);
  const auto p_fresh_start = block.add(from.fresh_start), p_fresh_past = block.add(from.fresh_past),
             p_slot = block.add(from.slot);
  const auto p_table = block.add(from.table), p_logit = block.add(from.logit_row);
  PhaseParts parts[3];
  for (int i = 0; i < 3; ++i)
    parts[i] = {block.add(from.phase[i].start), block.add(from.phase[i].past), block.add(from.phase[i].slot),
                block.add(from.phase[i].before)};
  LATHE_RETURN_IF_ERROR(block.upload(device, block_));
  const auto view = [&](Block::Part p) { return Array<const int32_t>{block_.as<int32_t>() + p.offset, p.count}; };
  token = view(p_token), feature = view(p_feature);
  runs = {view(p_start), view(p_past)};
  fresh = {view(p_fresh_start), view(p_fresh_past)};
  slot = view(p_slot), table = view(p_table), logit_row = view(p_logit);
  cursor = memory.upload_cursors();
  PhaseRows* const phases[3] = {&prefill, &decode, &replay};
  for (int i = 0; i < 3; ++i) {
    phases[i]->runs = {view(parts[i].start), view(parts[i].past)};
    phases[i]->slot = view(parts[i].slot);
    phases[i]->before = view(parts[i].before);
  }
  return Status::ok();
}

}  // namespace lathe
