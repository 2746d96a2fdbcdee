#pragma once

#include "ops/hc_boundary/streams.h"
#include "ops/hc_head/hc_head.h"

// The head over a file's Lanes, a row at a time.

namespace lathe {
namespace {

inline Status mean_rows(OpContext& ctx, const HcHeadArgs& a) {
  const int64_t rows = a.h.rows, hidden = a.h.width, copies = a.copies;
  const int64_t padded = (hidden + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount;
  // About 32K values a task: a wake-up of the pool costs about as much as it takes to mix them.
  const int64_t per_task = std::max<int64_t>(1, 32768 / (copies * hidden + 1));
  ArenaScope scope(*ctx.scratch);
  float* room = ctx.scratch->take<float>(ctx.pool->threads() * padded);
  float share[kMaxCopies];
  for (int s = 0; s < copies; ++s) share[s] = 1.0f / static_cast<float>(copies);
  ctx.pool->run((rows + per_task - 1) / per_task, [&](int64_t task, int worker) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t row = task * per_task; row < end; ++row) {
      mix_row(a.copies, a.streams, a.y, a.streams_out, row, 0, hidden, a.post.data + row * copies,
              a.comb.data + row * copies * copies, nullptr, 0);
      collapse_row(a.copies, a.streams_out, share, a.norm_weight.data, a.norm_eps, room + worker * padded, a.h, row);
    }
  });
  return Status::ok();
}

}  // namespace
}  // namespace lathe
