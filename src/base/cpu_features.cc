#include "base/cpu_features.h"

#include <cpuid.h>

#include <cstdlib>
#include <string_view>

namespace lathe {

namespace {

// For names that clang 14 doesn't know in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

CpuFeatures detect() {
  CpuFeatures f;
  const char* limit = std::getenv("LATHE_ISA");
  const std::string_view isa = limit ? limit : "avx512";
  if (isa == "portable") return f;
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (isa == "avx2") return f;
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_bf16 = f.avx512 && has_avx512_bf16();
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace lathe
