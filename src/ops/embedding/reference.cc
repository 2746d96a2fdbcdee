#include "ops/element.h"
#include "ops/embedding/variants.h"

namespace lathe::reference {

namespace {

double value(const EmbeddingArgs& args, int64_t row, int64_t i) {
  if (args.token[row] == -1) return 0;
  if (!args.feature.empty() && args.feature[row] >= 0) return load(args.features, args.feature[row], i);
  return load(args.table, args.token[row], i);
}

}  // namespace

Status embedding(OpContext&, const EmbeddingArgs& args) {
  const int64_t hidden = args.table.in;
  for (int64_t r = 0; r < args.token.count; ++r)
    for (int copy = 0; copy < args.copies; ++copy)
      for (int64_t i = 0; i < hidden; ++i) store(args.out, r, copy * hidden + i, value(args, r, i));
  return Status::ok();
}

}  // namespace lathe::reference
