#include "ops/registry.h"

namespace lathe {

AnyOp add_workload();

std::span<const AnyOp> all_ops() {
  static const std::vector<AnyOp> ops = {
      add_workload(),
  };
  return ops;
}

}  // namespace lathe
