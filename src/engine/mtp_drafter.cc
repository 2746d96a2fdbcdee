#include "engine/mtp_drafter.h"

#include <algorithm>

#include "engine/run_settings.h"
#include "ops/row_floats.h"

namespace lathe {

// One pass of the block; afterwards each request that wants drafts holds the next chained row, and one draft more.
Status MtpDrafter::pass(std::vector<DraftRequest*>& requests) {
  // In the order in which a batch lays out its rows, so that hidden rows can be laid out alike.
  std::stable_sort(requests.begin(), requests.end(), [](const DraftRequest* a, const DraftRequest* b) {
    return (a->next_tokens.size() == 1) < (b->next_tokens.size() == 1);
  });
  std::vector<Run> runs;
  std::vector<int> past;
  std::vector<float> hidden;
  std::vector<int32_t> positions;
  for (const DraftRequest* r : requests) {
    Run run{.sequence = r->sequence, .tokens = r->next_tokens, .features = {}};
    if (r->first == 0) run.tokens[0] = -1;  // the embedding of row 0 counts as zero
    run.logits_of_last = r->wants_drafts ? 1 : 0;
    if (r->wants_drafts) positions.push_back(r->first + static_cast<int>(r->next_tokens.size()) + 1);
    runs.push_back(std::move(run)), past.push_back(r->first);
    hidden.insert(hidden.end(), r->hidden.begin(), r->hidden.end());
  }
  const int64_t width = executor_.tower().config().hidden, rows = static_cast<int64_t>(hidden.size()) / width;
  const DType dtype = executor_.tower().dtype();
  std::vector<char> stored(hidden.size() * dtype_bytes(dtype));
  write_floats(stored.data(), dtype, static_cast<int64_t>(hidden.size()), hidden.data());
  LATHE_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(executor_.device(), static_cast<int64_t>(stored.size())));
  executor_.device().to_device(buffer.as(), stored.data(), static_cast<int64_t>(stored.size()));
  const Rows previous{.data = buffer.as(), .dtype = dtype, .rows = rows, .width = width, .stride = width};
  LATHE_ASSIGN(const glm5_next::StepOutput out, executor_.run_mtp(runs, past, previous));
  std::vector<float> next_hidden;
  LATHE_RETURN_IF_ERROR(rows_to_host(executor_.device(), out.hidden, next_hidden));
  LATHE_ASSIGN(const std::vector<int32_t> chosen,
               choice_.choose(executor_, out.logits, std::vector<SampleSettings>(positions.size()), positions));
  int64_t row = 0;
  size_t logit_row = 0;
  for (DraftRequest* r : requests) {
    row += static_cast<int64_t>(r->next_tokens.size());
    if (!r->wants_drafts) continue;
    r->first += static_cast<int>(r->next_tokens.size());
    r->hidden.assign(next_hidden.begin() + (row - 1) * width, next_hidden.begin() + row * width);
    r->next_tokens = {chosen[logit_row++]};
    r->drafts.push_back(r->next_tokens[0]);
  }
  return Status::ok();
}

Status MtpDrafter::draft(std::vector<DraftRequest>& requests, int count) {
  std::vector<DraftRequest*> left;
  for (DraftRequest& r : requests)
    if (!r.next_tokens.empty()) left.push_back(&r);
  for (int i = 0; i < count && !left.empty(); ++i) {
    LATHE_RETURN_IF_ERROR(pass(left));
    std::erase_if(left, [](const DraftRequest* r) { return !r->wants_drafts; });
  }
  return Status::ok();
}

}  // namespace lathe
