#include "ops/registry.h"

namespace lathe {

AnyOp add_workload();
AnyOp embedding_workload();
AnyOp norm_workload();

std::span<const AnyOp> all_ops() {
  static const std::vector<AnyOp> ops = {
      add_workload(),
      embedding_workload(),
      norm_workload(),
  };
  return ops;
}

}  // namespace lathe
