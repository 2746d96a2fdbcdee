#pragma once

#include "ops/sample/sample.h"

namespace lathe {
namespace reference {
Status sample(OpContext& ctx, const SampleArgs& args);
}
}  // namespace lathe
