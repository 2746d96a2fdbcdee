#include "feedback/dot_loops.h"

namespace lathe::avx2 {

namespace {

// As dot_loops_avx512.cc, in 16 registers: 12 chains, operands in ymm12 and ymm13, ymm14 and ymm15 for int8's steps.
constexpr int kChains = 12;
constexpr int kByteChains = 8;

#define LATHE_SET(value, r) "vmovd " value ", %%xmm" #r "\n\tvpbroadcastd %%xmm" #r ", %%ymm" #r "\n\t"
#define LATHE_FMA(sum) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #sum "\n\t"
// u8 x s8 in pairs to 16 bits, those in pairs to 32, added: what int8 products cost without VNNI.
#define LATHE_MADD(step, sum)                                                                    \
  "vpmaddubsw %%ymm12, %%ymm13, %%ymm" #step "\n\tvpmaddwd %%ymm" #step ", %%ymm11, %%ymm" #step \
  "\n\tvpaddd %%ymm" #step ", %%ymm" #sum ", %%ymm" #sum "\n\t"
#define LATHE_CLOBBERS                                                                                             \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14", "xmm15"

void fp32(int64_t iterations) {
  asm volatile(LATHE_SET("%[start]", 0) LATHE_SET("%[start]", 1) LATHE_SET("%[start]", 2) LATHE_SET("%[start]", 3)
                   LATHE_SET("%[start]", 4) LATHE_SET("%[start]", 5) LATHE_SET("%[start]", 6) LATHE_SET("%[start]", 7)
                       LATHE_SET("%[start]", 8) LATHE_SET("%[start]", 9) LATHE_SET("%[start]", 10)
                           LATHE_SET("%[start]", 11) LATHE_SET("%[factor]", 12)
                               LATHE_SET("%[factor]", 13) ".p2align 5\n1:\n\t" LATHE_FMA(0) LATHE_FMA(1) LATHE_FMA(2)
                                   LATHE_FMA(3) LATHE_FMA(4) LATHE_FMA(5) LATHE_FMA(6) LATHE_FMA(7) LATHE_FMA(8)
                                       LATHE_FMA(9) LATHE_FMA(10) LATHE_FMA(11) "dec %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [start] "r"(0x3c003c00), [factor] "r"(0x3c013c01)
               : LATHE_CLOBBERS);
}

void int8_quads(int64_t iterations) {
  asm volatile(LATHE_SET("%[start]", 0) LATHE_SET("%[start]", 1) LATHE_SET("%[start]", 2) LATHE_SET("%[start]", 3)
                   LATHE_SET("%[start]", 4) LATHE_SET("%[start]", 5) LATHE_SET("%[start]", 6) LATHE_SET("%[start]", 7)
                       LATHE_SET("%[ones]", 11) LATHE_SET("%[factor]", 12)
                           LATHE_SET("%[factor]", 13) ".p2align 5\n1:\n\t" LATHE_MADD(14, 0) LATHE_MADD(15, 1)
                               LATHE_MADD(10, 2) LATHE_MADD(9, 3) LATHE_MADD(14, 4) LATHE_MADD(15, 5) LATHE_MADD(10, 6)
                                   LATHE_MADD(9, 7) "dec %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [start] "r"(0x3c003c00), [factor] "r"(0x3c013c01), [ones] "r"(0x00010001)
               : LATHE_CLOBBERS);
}

}  // namespace

DotLoops dot_loops() {
  const DotLoop floats{"vfmadd231ps ymm", kChains * 8 * 2.0, fp32};
  return {floats, floats, {"vpmaddubsw, vpmaddwd, vpaddd ymm", kByteChains * 32 * 2.0, int8_quads}};
}

}  // namespace lathe::avx2
