#include "model/batch.h"

#include <algorithm>
#include <numeric>

namespace lathe {

namespace {

enum Phase { kPrefill, kDecode, kReplay };

Phase phase_of(const Run& run) { return run.in_ring ? kReplay : run.tokens.size() == 1 ? kDecode : kPrefill; }

// Segment r of n rows cut into `ranks` nearly equal pieces, the first ones longer.
int piece(int n, int ranks, int r) { return n / ranks + (r < n % ranks ? 1 : 0); }
int pieces_before(int n, int ranks, int r) { return n / ranks * r + std::min(r, n % ranks); }

// Collects integer arrays, then uploads them as one block.
class Block {
 public:
  struct Part {
    int64_t offset, count;
  };
  Part add(const std::vector<int32_t>& values) {
    const Part part{static_cast<int64_t>(all_.size()), static_cast<int64_t>(values.size())};
    all_.insert(all_.end(), values.begin(), values.end());
    all_.resize((all_.size() + 15) / 16 * 16);
    return part;
  }
  Result<DeviceBuffer> upload(Device& device) {
    LATHE_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device, static_cast<int64_t>(all_.size()) * 4 + 64));
    device.to_device(buffer.as(), all_.data(), static_cast<int64_t>(all_.size()) * 4);
    return buffer;
  }
  static Array<const int32_t> view(const DeviceBuffer& b, Part p) { return {b.as<int32_t>() + p.offset, p.count}; }

 private:
  std::vector<int32_t> all_;
};

struct PhaseParts {
  Block::Part start, past, slot, before;
};

}  // namespace

int Batch::segment_rows(int i, int r) const { return cut ? piece(total_rows[i], ranks, r) : total_rows[i]; }

Result<std::unique_ptr<Batch>> Batch::build(Device& device, const std::vector<Run>& runs, SequenceMemory& memory,
                                            const Partition& partition) {
  std::vector<int> past;
  for (const Run& r : runs) {
    if (!r.in_ring && !memory.ring_is_empty(r.sequence))
      return internal("sequence {} must be folded before a pass without ring", r.sequence);
    past.push_back(memory.position(r.sequence));
  }
  return build_at(device, runs, past, memory, partition);
}

Result<std::unique_ptr<Batch>> Batch::build_at(Device& device, const std::vector<Run>& runs,
                                               const std::vector<int>& past_of_run, SequenceMemory& memory,
                                               const Partition& partition) {
  auto b = std::make_unique<Batch>();
  const int sequences = static_cast<int>(runs.size());
  b->order.resize(sequences);
  std::iota(b->order.begin(), b->order.end(), 0);
  std::stable_sort(b->order.begin(), b->order.end(),
                   [&](int x, int y) { return phase_of(runs[x]) < phase_of(runs[y]); });
  const bool prefill_only = std::all_of(runs.begin(), runs.end(), [](const Run& r) { return !r.in_ring; });
  const bool any_long = std::any_of(runs.begin(), runs.end(), [](const Run& r) { return r.tokens.size() > 1; });
  b->cut = partition.is(Parallel::kContext) && any_long;
  b->ranks = partition.size;
  if (b->cut && !prefill_only) return invalid("--cut cp: a batch of prefills can't hold replay rows");

  std::vector<int32_t> token, feature, start{0}, past, fresh_start{0}, fresh_past, slot, table, logit_row;
  std::vector<int32_t> phase_start[3], phase_past[3], phase_slot[3], phase_before[3];
  PhaseRows* phases[3] = {&b->prefill, &b->decode, &b->replay};
  bool any_feature = false;
  for (const Run& r : runs) {
    b->table_stride = std::max<int64_t>(b->table_stride, static_cast<int64_t>(memory.pages(r.sequence).size()));
    any_feature |= !r.features.empty();
  }
  for (int i = 0; i < sequences; ++i) {
    const Run& run = runs[b->order[i]];
    const int total = static_cast<int>(run.tokens.size()), position = past_of_run[b->order[i]];
    LATHE_CHECK(run.features.empty() || run.features.size() == run.tokens.size());
    LATHE_CHECK(static_cast<int64_t>(position) + total <=
                static_cast<int64_t>(memory.pages(run.sequence).size()) * memory.shape().page_tokens);
    const int before = b->cut ? pieces_before(total, b->ranks, partition.rank) : 0;
    const int local = b->cut ? piece(total, b->ranks, partition.rank) : total;
    // Under a cut every run goes through the scan, also single rows.
    const Phase phase = b->cut ? kPrefill : phase_of(run);
    PhaseRows& p = *phases[phase];
    if (phase_start[phase].empty()) {
      p.first_row = static_cast<int64_t>(token.size());
      p.first_sequence = i;
      phase_start[phase].push_back(0);
    }
    for (int t = before; t < before + local; ++t) {
      token.push_back(run.tokens[t]);
      if (any_feature) feature.push_back(run.features.empty() ? -1 : run.features[t]);
    }
    const int wanted = run.logits_of_last < 0 ? total : std::min(run.logits_of_last, total);
    for (int t = total - wanted; t < total; ++t) logit_row.push_back(fresh_start.back() + t);
    b->logits_by_sequence.push_back(wanted);
    b->local_rows.push_back(local), b->total_rows.push_back(total);
    start.push_back(start.back() + local), past.push_back(position + before);
    fresh_start.push_back(fresh_start.back() + total), fresh_past.push_back(position);
    slot.push_back(memory.slot(run.sequence));
    p.rows += local;
    phase_start[phase].push_back(phase_start[phase].back() + local);
    phase_past[phase].push_back(past.back());
    phase_before[phase].push_back(position);
    phase_slot[phase].push_back(slot.back());
    std::vector<int32_t> pages = memory.pages(run.sequence);
    pages.resize(b->table_stride, -1);
    table.insert(table.end(), pages.begin(), pages.end());
  }
  b->rows = start.back(), b->all_rows = fresh_start.back();

  Block block;
  const auto p_token = block.add(token), p_feature = block.add(feature), p_start = block.add(start),
             p_past = block.add(past);
  const auto p_fresh_start = block.add(fresh_start), p_fresh_past = block.add(fresh_past), p_slot = block.add(slot);
  const auto p_table = block.add(table), p_logit = block.add(logit_row);
  PhaseParts parts[3];
  for (int i = 0; i < 3; ++i)
    parts[i] = {block.add(phase_start[i]), block.add(phase_past[i]), block.add(phase_slot[i]),
                block.add(phase_before[i])};
  LATHE_ASSIGN(b->block_, block.upload(device));
  const DeviceBuffer& m = b->block_;
  b->token = Block::view(m, p_token), b->feature = Block::view(m, p_feature);
  b->runs = {Block::view(m, p_start), Block::view(m, p_past)};
  b->fresh = {Block::view(m, p_fresh_start), Block::view(m, p_fresh_past)};
  b->slot = Block::view(m, p_slot), b->table = Block::view(m, p_table), b->logit_row = Block::view(m, p_logit);
  b->cursor = memory.upload_cursors();
  for (int i = 0; i < 3; ++i) {
    phases[i]->runs = {Block::view(m, parts[i].start), Block::view(m, parts[i].past)};
    phases[i]->slot = Block::view(m, parts[i].slot);
    phases[i]->before = Block::view(m, parts[i].before);
  }
  return b;
}

}  // namespace lathe
