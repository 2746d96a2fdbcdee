#include <algorithm>
#include <atomic>
#include <cstring>

#include "ops/embedding/variants.h"
#include "ops/row_floats.h"

// Memory decides: a row is converted, if at all, into its first copy, and the others are plain copies of that.
namespace lathe::portable {

namespace {

struct Source {
  const void* data = nullptr;  // nullptr: zeroes
  DType dtype = DType::kF32;
  bool exists = true;  // false: an index beyond the table or the features
};

Source source(const EmbeddingArgs& args, int64_t row) {
  const int32_t token = args.token[row];
  if (token == -1) return {};
  if (const int32_t feature = args.feature.empty() ? -1 : args.feature[row]; feature >= 0)
    return feature < args.features.rows ? Source{args.features.at(feature), args.features.dtype}
                                        : Source{.exists = false};
  return token >= 0 && token < args.table.out ? Source{args.table.at(token), args.table.dtype}
                                              : Source{.exists = false};
}

void write(const Source& from, DType to, int64_t hidden, void* out) {
  if (!from.data) {
    std::memset(out, 0, hidden * dtype_bytes(to));
  } else if (from.dtype == to) {
    std::memcpy(out, from.data, hidden * dtype_bytes(to));
  } else if (to == DType::kF32) {
    read_floats(from.data, from.dtype, hidden, static_cast<float*>(out));
  } else {
    std::vector<float> wide(hidden);
    read_floats(from.data, from.dtype, hidden, wide.data());
    write_floats(out, to, hidden, wide.data());
  }
}

}  // namespace

Status embedding(OpContext& ctx, const EmbeddingArgs& args) {
  const int64_t hidden = args.table.in, bytes = hidden * dtype_bytes(args.out.dtype);
  // About 64 KB written a task, so that a few rows don't wake the pool.
  const int64_t rows_per_task = std::max<int64_t>(1, 65536 / std::max<int64_t>(bytes * args.copies, 1));
  std::atomic<int64_t> bad_row = -1;
  ctx.pool->run((args.token.count + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(args.token.count, (task + 1) * rows_per_task);
    for (int64_t r = task * rows_per_task; r < end; ++r) {
      const Source from = source(args, r);
      if (!from.exists) {
        bad_row = r;
        continue;
      }
      char* out = static_cast<char*>(args.out.at(r));
      write(from, args.out.dtype, hidden, out);
      for (int copy = 1; copy < args.copies; ++copy) std::memcpy(out + copy * bytes, out, bytes);
    }
  });
  if (const int64_t r = bad_row; r >= 0)
    return invalid("row {}: token {} or its feature is outside the table of {} and the {} features", r, args.token[r],
                   args.table.out, args.features.rows);
  return Status::ok();
}

}  // namespace lathe::portable
