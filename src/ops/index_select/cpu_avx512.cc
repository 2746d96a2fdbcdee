#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/index_select/blocks.h"
#include "ops/index_select/variants.h"

namespace lathe::avx512 {

namespace {

struct CompressingPicker {
  // out may be keys: what is written was read before.
  static int64_t in_range(const uint32_t* keys, int64_t n, uint32_t least, uint32_t most, uint32_t* out) {
    const __m512i low = _mm512_set1_epi32(static_cast<int>(least)), high = _mm512_set1_epi32(static_cast<int>(most));
    int64_t found = 0;
    for (int64_t i = 0; i < n; i += 16) {
      const __mmask16 there = n - i < 16 ? Lanes::first(static_cast<int>(n - i)) : 0xffff;
      const __m512i key = _mm512_maskz_loadu_epi32(there, keys + i);
      const __mmask16 in = _mm512_mask_cmple_epu32_mask(_mm512_mask_cmpge_epu32_mask(there, key, low), key, high);
      if (!in) continue;
      _mm512_mask_compressstoreu_epi32(out + found, in, key);
      found += __builtin_popcount(in);
    }
    return found;
  }
  static int64_t at_least(const uint32_t* keys, int64_t n, uint32_t key, int32_t* out) {
    const __m512i least = _mm512_set1_epi32(static_cast<int>(key));
    __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t found = 0;
    for (int64_t i = 0; i < n; i += 16, index = _mm512_add_epi32(index, _mm512_set1_epi32(16))) {
      const __mmask16 there = n - i < 16 ? Lanes::first(static_cast<int>(n - i)) : 0xffff;
      const __mmask16 in = _mm512_mask_cmpge_epu32_mask(there, _mm512_maskz_loadu_epi32(there, keys + i), least);
      if (!in) continue;
      _mm512_mask_compressstoreu_epi32(out + found, in, index);
      found += __builtin_popcount(in);
    }
    return found;
  }
};

}  // namespace

bool index_select_applies(const IndexSelectArgs&) { return cpu_features().avx512; }

Status index_select(OpContext& ctx, const IndexSelectArgs& args) { return Indexer<CompressingPicker>(ctx, args).run(); }

}  // namespace lathe::avx512
