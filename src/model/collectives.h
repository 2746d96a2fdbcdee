#pragma once

#include "model/batch.h"
#include "ops/op.h"

// How the ranks of a cut model join their rows. On the device's queue; without a communicator nothing is called.
namespace lathe {

// y = sum over ranks of partial (f32), rounded to y's dtype.
Status sum_rows(OpContext& ctx, const Rows& partial, const Rows& y);
// all [batch.all_rows, width]: every rank's local rows, in the order of the sequences.
Status gather_rows(OpContext& ctx, const Batch& batch, const Rows& local, const Rows& all);
// all [rows, sum of widths]: the ranks' columns side by side, f32. This rank's share lies at partition's range.
Status gather_columns(OpContext& ctx, const Partition& partition, const Rows& local, const Rows& all);

}  // namespace lathe
