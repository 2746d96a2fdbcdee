#pragma once

#include "ops/sample/sample.h"

namespace lathe {
namespace reference {
Status sample(OpContext& ctx, const SampleArgs& args);
}
namespace portable {
bool sample_applies(const SampleArgs& args);
Status sample(OpContext& ctx, const SampleArgs& args);
}  // namespace portable
namespace avx2 {
bool sample_applies(const SampleArgs& args);
Status sample(OpContext& ctx, const SampleArgs& args);
}  // namespace avx2
namespace avx512 {
bool sample_applies(const SampleArgs& args);
Status sample(OpContext& ctx, const SampleArgs& args);
}  // namespace avx512
namespace cuda {
Status sample(OpContext& ctx, const SampleArgs& args);
}
}  // namespace lathe
