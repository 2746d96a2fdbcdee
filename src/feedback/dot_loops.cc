#include "feedback/dot_loops.h"

#include "base/cpu_features.h"

namespace lathe {

namespace portable {

namespace {

// Plain C++ over as many chains as hide the latency. Every chain starts from a value of its own: equal ones would be
// merged into one chain, and the peak would read far too high.
constexpr int kChains = 32;

void multiply_add_floats(int64_t iterations) {
  float sum[kChains], factor[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = static_cast<float>(i + 1), factor[i] = 1 + 1e-7f * static_cast<float>(i);
  for (int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < kChains; ++i) sum[i] = sum[i] * factor[i] + 1e-3f;
  for (float& s : sum) asm volatile("" : : "m"(s));
}

void multiply_add_bytes(int64_t iterations) {
  int32_t sum[kChains];
  int8_t a[kChains], b[kChains];
  for (int i = 0; i < kChains; ++i)
    sum[i] = i, a[i] = static_cast<int8_t>(i + 3), b[i] = static_cast<int8_t>(7 * i + 1);
  for (int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < kChains; ++i) sum[i] += a[i] * b[i];
    asm volatile("" : "+m"(a), "+m"(b));  // new operands each time, as far as the compiler knows
  }
  for (int32_t& s : sum) asm volatile("" : : "m"(s));
}

}  // namespace

DotLoops dot_loops() {
  const DotLoop floats{"plain C++, float", 2.0 * kChains, multiply_add_floats};
  return {floats, floats, {"plain C++, int8", 2.0 * kChains, multiply_add_bytes}};
}

}  // namespace portable

DotLoops dot_loops() {
  const CpuFeatures& f = cpu_features();
  if (!f.avx2) return portable::dot_loops();
  DotLoops best = avx2::dot_loops();
  if (!f.avx512) return best;
  const DotLoops wide = avx512::dot_loops();
  best.fp32 = best.bf16 = wide.fp32;
  if (f.avx512_bf16) best.bf16 = wide.bf16;
  if (f.avx512_vnni) best.int8 = wide.int8;
  return best;
}

}  // namespace lathe
