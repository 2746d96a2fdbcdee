#pragma once

namespace lathe {

// What this machine's cores can run, asked once. LATHE_ISA=portable|avx2|avx512 lowers it (tests of every path).
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // and BF16
  bool avx512_vnni = false;  // and VNNI
};
const CpuFeatures& cpu_features();

}  // namespace lathe
