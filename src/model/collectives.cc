#include "model/collectives.h"

#include <algorithm>
#include <cstring>

#include "ops/row_floats.h"

namespace lathe {

namespace {

// Views as the device's queue sees them.
Rows on_queue(const OpContext& ctx, Rows r) {
  if (ctx.device->kind() == DeviceKind::kSim) r.data = sim_to_host(r.data);
  return r;
}

}  // namespace

Status sum_rows(OpContext& ctx, const Rows& partial, const Rows& y) {
  LATHE_CHECK(partial.dtype == DType::kF32 && partial.stride == partial.width);
  const Rows from = on_queue(ctx, partial), to = on_queue(ctx, y);
  ctx.device->enqueue([comm = ctx.comm, from, to] {
    comm->all_reduce_sum(from.f32(), from.rows * from.width);
    for (int64_t r = 0; r < from.rows; ++r) write_row(to, r, from.f32(r));
    return Status::ok();
  });
  return Status::ok();
}

Status gather_rows(OpContext& ctx, const Batch& batch, const Rows& local, const Rows& all) {
  const Rows from = on_queue(ctx, local), to = on_queue(ctx, all);
  std::vector<std::vector<int>> rows(batch.ranks);  // [rank][sequence]
  int64_t most = 0;
  for (int r = 0; r < batch.ranks; ++r) {
    int64_t sum = 0;
    for (size_t i = 0; i < batch.total_rows.size(); ++i) {
      rows[r].push_back(batch.segment_rows(static_cast<int>(i), r));
      sum += rows[r].back();
    }
    most = std::max(most, sum);
  }
  ctx.device->enqueue([comm = ctx.comm, from, to, rows = std::move(rows), most] {
    const int64_t row_bytes = from.width * dtype_bytes(from.dtype);
    std::vector<char> mine(most * row_bytes), gathered(most * row_bytes * static_cast<int64_t>(rows.size()));
    for (int64_t r = 0; r < from.rows; ++r) std::memcpy(mine.data() + r * row_bytes, from.at(r), row_bytes);
    comm->all_gather(mine.data(), gathered.data(), most * row_bytes);
    std::vector<int64_t> next(rows.size(), 0);
    int64_t out = 0;
    for (size_t i = 0; i < rows[0].size(); ++i)
      for (size_t r = 0; r < rows.size(); ++r)
        for (int j = 0; j < rows[r][i]; ++j)
          std::memcpy(to.at(out++), gathered.data() + (static_cast<int64_t>(r) * most + next[r]++) * row_bytes,
                      row_bytes);
    return Status::ok();
  });
  return Status::ok();
}

Status gather_columns(OpContext& ctx, const Partition& partition, const Rows& local, const Rows& all) {
  LATHE_CHECK(local.dtype == DType::kF32 && all.dtype == DType::kF32);
  const Rows from = on_queue(ctx, local), to = on_queue(ctx, all);
  ctx.device->enqueue([comm = ctx.comm, from, to, partition] {
    int64_t widest = 0;
    for (int r = 0; r < partition.size; ++r)
      widest = std::max(widest, Partition{partition.kind, partition.size, r}.share(to.width).count);
    std::vector<float> mine(from.rows * widest), gathered(mine.size() * partition.size);
    for (int64_t r = 0; r < from.rows; ++r) std::copy_n(from.f32(r), from.width, mine.data() + r * widest);
    comm->all_gather(mine.data(), gathered.data(), static_cast<int64_t>(mine.size()) * 4);
    for (int rank = 0; rank < partition.size; ++rank) {
      const Partition::Range part = Partition{partition.kind, partition.size, rank}.share(to.width);
      for (int64_t r = 0; r < to.rows; ++r)
        std::copy_n(gathered.data() + static_cast<int64_t>(rank) * mine.size() + r * widest, part.count,
                    to.f32(r) + part.begin);
    }
    return Status::ok();
  });
  return Status::ok();
}

}  // namespace lathe
