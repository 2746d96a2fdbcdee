#include "feedback/dot_loops.h"

namespace lathe::avx512 {

namespace {

// One loop in assembly: what runs is what stands here. 20 chains (zmm0 to zmm19) cover the latency of 4 or 5 cycles on
// two ports; operands are zmm20 to zmm25, all normal small numbers, whether read as fp32, bf16 or int8.
constexpr int kChains = 20;

#define LATHE_CHAIN(instruction, a, b, sum) instruction " %%zmm" #a ", %%zmm" #b ", %%zmm" #sum "\n\t"
#define LATHE_FOUR(instruction, a, s0, s1, s2, s3) \
  LATHE_CHAIN(instruction, a, 22, s0)              \
  LATHE_CHAIN(instruction, a, 23, s1) LATHE_CHAIN(instruction, a, 24, s2) LATHE_CHAIN(instruction, a, 25, s3)
#define LATHE_SET(value, r) "vpbroadcastd " value ", %%zmm" #r "\n\t"

#define LATHE_DOT_LOOP(name, instruction)                                                                              \
  void name(int64_t iterations) {                                                                                      \
    asm volatile(                                                                                                      \
        LATHE_SET("%[start]", 0) LATHE_SET("%[start]", 1) LATHE_SET("%[start]", 2) LATHE_SET("%[start]", 3)            \
            LATHE_SET("%[start]", 4) LATHE_SET("%[start]", 5) LATHE_SET("%[start]", 6) LATHE_SET("%[start]", 7)        \
                LATHE_SET("%[start]", 8) LATHE_SET("%[start]", 9) LATHE_SET("%[start]", 10) LATHE_SET("%[start]", 11)  \
                    LATHE_SET("%[start]", 12) LATHE_SET("%[start]", 13) LATHE_SET("%[start]", 14) LATHE_SET(           \
                        "%[start]", 15) LATHE_SET("%[start]", 16) LATHE_SET("%[start]", 17) LATHE_SET("%[start]", 18)  \
                        LATHE_SET("%[start]", 19) LATHE_SET("%[factor]", 20) LATHE_SET("%[factor]", 21) LATHE_SET(     \
                            "%[factor]", 22) LATHE_SET("%[factor]", 23) LATHE_SET("%[factor]", 24)                     \
                            LATHE_SET("%[factor]", 25) ".p2align 5\n1:\n\t" LATHE_FOUR(instruction, 20, 0, 1, 2, 3)    \
                                LATHE_FOUR(instruction, 21, 4, 5, 6, 7) LATHE_FOUR(instruction, 20, 8, 9, 10, 11)      \
                                    LATHE_FOUR(instruction, 21, 12, 13, 14, 15)                                        \
                                        LATHE_FOUR(instruction, 20, 16, 17, 18, 19) "dec %[n]\n\tjnz 1b\n\tvzeroupper" \
        : [n] "+r"(iterations)                                                                                         \
        : [start] "r"(0x3c003c00), [factor] "r"(0x3c013c01)                                                            \
        : "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11",      \
          "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23",  \
          "zmm24", "zmm25");                                                                                           \
  }

LATHE_DOT_LOOP(fp32, "vfmadd231ps")
LATHE_DOT_LOOP(bf16_pairs, "vdpbf16ps")
LATHE_DOT_LOOP(int8_quads, "vpdpbusd")

}  // namespace

DotLoops dot_loops() {
  return {{"vfmadd231ps zmm", kChains * 16 * 2.0, fp32},
          {"vdpbf16ps zmm", kChains * 32 * 2.0, bf16_pairs},
          {"vpdpbusd zmm", kChains * 64 * 2.0, int8_quads}};
}

}  // namespace lathe::avx512
