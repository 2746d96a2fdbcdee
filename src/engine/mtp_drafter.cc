#include "engine/mtp_drafter.h"

#include <algorithm>

namespace lathe {

std::vector<MtpDrafter::Chain> MtpDrafter::begin(std::vector<DraftRequest>& requests) const {
  const SequenceMemory& memory = executor_.memory();
  std::vector<Chain> chains;
  for (DraftRequest& r : requests) {
    r.drafts.clear();
    const int first = memory.mtp_rows(r.sequence), end = r.before + static_cast<int>(r.tokens.size()) - 1;
    if (first < r.before - 1 || first >= end) continue;  // a gap; or nothing to do
    Chain c{.request = &r,
            .first = first,
            .next_tokens = {r.tokens.begin() + first + 1 - r.before, r.tokens.end()},
            .hidden = {}};
    if (first < r.before) c.hidden.push_back(memory.hidden_before(r.sequence));
    if (end > r.before)
      c.hidden.push_back(executor_.hidden_of_last_run(r.sequence)
                             .slice(std::max(first - r.before, 0), end - std::max(first, r.before)));
    chains.push_back(std::move(c));
  }
  return chains;
}

// One pass of the block. Afterwards each chain that wanted a draft has one more, and holds the row that follows it.
Status MtpDrafter::pass(std::vector<Chain>& chains) {
  // In the order in which a batch lays out its rows, so that hidden rows can be laid out alike.
  std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) {
    return (a.next_tokens.size() == 1) < (b.next_tokens.size() == 1);
  });
  std::vector<Run> runs;
  std::vector<int> past;
  rows_.clear();
  int64_t rows = 0;
  for (const Chain& c : chains) {
    Run run{.sequence = c.request->sequence, .tokens = c.next_tokens, .features = {}};
    if (c.first == 0) run.tokens[0] = -1;  // the embedding of row 0 counts as zero
    run.logits_of_last = c.wants_draft() ? 1 : 0;
    if (c.wants_draft()) {
      DrawRow& row = rows_.emplace_back();
      if (c.request->ahead) c.request->ahead->fill(row);
      row.logit_row = static_cast<int64_t>(rows_.size()) - 1, row.best = -1;
      row.position = c.first + static_cast<int>(c.next_tokens.size()) + 1;
    }
    rows += static_cast<int64_t>(c.next_tokens.size());
    runs.push_back(std::move(run)), past.push_back(c.first);
  }
  // Gathered outside the activations, which the pass overwrites.
  Device& device = executor_.device();
  const int64_t width = executor_.tower().config().hidden;
  const DType dtype = executor_.tower().dtype();
  if (previous_.bytes() < rows * width * dtype_bytes(dtype)) {
    LATHE_ASSIGN(previous_, DeviceBuffer::allocate(device, 2 * rows * width * dtype_bytes(dtype)));
  }
  const Rows previous{.data = previous_.as(), .dtype = dtype, .rows = rows, .width = width, .stride = width};
  int64_t row = 0;
  for (const Chain& c : chains)
    for (const Rows& piece : c.hidden) {
      device.copy(previous.at(row), piece.data, piece.rows * width * dtype_bytes(dtype));
      row += piece.rows;
    }
  LATHE_CHECK(row == rows);
  LATHE_ASSIGN(const glm5_next::StepOutput out, executor_.run_mtp(runs, past, previous));
  LATHE_ASSIGN(const std::span<const Drawn> drawn, sampler_.draw(executor_, out.logits, rows_));
  row = 0;
  size_t logit_row = 0;
  for (Chain& c : chains) {
    const int count = static_cast<int>(c.next_tokens.size());
    row += count;
    if (!c.wants_draft()) continue;
    c.first += count;
    c.hidden = {out.hidden.slice(row - 1, 1)};
    const int32_t draft = drawn[logit_row++].token;
    if (draft < 0) {
      c.request->wanted = static_cast<int>(c.request->drafts.size());  // nothing may follow
      continue;
    }
    c.next_tokens = {draft};
    c.request->drafts.push_back(draft);
    if (c.request->ahead) c.request->ahead->advance(draft);
  }
  return Status::ok();
}

Status MtpDrafter::draft(std::vector<DraftRequest>& requests) {
  std::vector<Chain> chains = begin(requests);
  if (chains.empty()) return Status::ok();
  LATHE_RETURN_IF_ERROR(pass(chains));
  for (const Chain& c : chains)
    executor_.memory().set_mtp_rows(c.request->sequence,
                                    c.request->before + static_cast<int>(c.request->tokens.size()) - 1);
  for (;;) {
    std::erase_if(chains, [](const Chain& c) { return !c.wants_draft(); });
    if (chains.empty()) return Status::ok();
    LATHE_RETURN_IF_ERROR(pass(chains));
  }
}

}  // namespace lathe
