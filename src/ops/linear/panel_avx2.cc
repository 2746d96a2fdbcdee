#include <immintrin.h>

#include "ops/linear/panel_portable.h"

// Tiles of panel.h on AVX2: a register holds a quad of two outputs, so 4 registers are half a panel. Everything around
// the tiles is portable code.

namespace lathe::avx2 {

namespace {

constexpr int kTileRows = 3;   // 3 x 4 running sums, the row's quad, the panel's: 14 of 16 registers
constexpr int kHalfPanel = 4;  // registers

struct F32 {
  using Value = float;
  using Sum = float;
  static constexpr int kLanes = 4;
  static __m256i add(__m256i sum, __m256i x, __m256i w) {
    return _mm256_castps_si256(
        _mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w), _mm256_castsi256_ps(sum)));
  }
};

struct I16 {
  using Value = int16_t;
  using Sum = int32_t;
  static constexpr int kLanes = 8;
  static __m256i add(__m256i sum, __m256i x, __m256i w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
};

template <class T, int R>
void half_panel(const typename T::Value* const* x, const __m256i* panel, int64_t quads, __m256i* sums) {
  constexpr int kRowRegisters = 2 * kHalfPanel;
  __m256i s[R][kHalfPanel];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kHalfPanel; ++v) s[r][v] = _mm256_loadu_si256(sums + r * kRowRegisters + v);
  for (int64_t q = 0; q < quads; ++q, panel += kRowRegisters) {
    __m256i xq[R];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
      xq[r] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x[r] + q * T::kLanes)));
#pragma GCC unroll 4
    for (int v = 0; v < kHalfPanel; ++v) {
      const __m256i w = _mm256_loadu_si256(panel + v);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) s[r][v] = T::add(s[r][v], xq[r], w);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kHalfPanel; ++v) _mm256_storeu_si256(sums + r * kRowRegisters + v, s[r][v]);
}

template <class T>
void tile(const typename T::Value* const* x, int64_t rows, const typename T::Value* panel, int64_t quads,
          typename T::Sum* sums) {
  for (int64_t r = 0; r < rows;) {
    const int n = static_cast<int>(rows - r < kTileRows ? rows - r : kTileRows);
    for (int half = 0; half < 2; ++half) {
      const __m256i* p = reinterpret_cast<const __m256i*>(panel) + half * kHalfPanel;
      __m256i* s = reinterpret_cast<__m256i*>(sums + r * portable::kRowSums) + half * kHalfPanel;
      if (n == 3)
        half_panel<T, 3>(x + r, p, quads, s);
      else if (n == 2)
        half_panel<T, 2>(x + r, p, quads, s);
      else
        half_panel<T, 1>(x + r, p, quads, s);
    }
    r += n;
  }
}

void multiply(const PanelBlock& b, float* values, const PanelScratch& s) {
  portable::multiply_by_tiles({tile<F32>, tile<I16>}, b, values, s);
}

PanelKernels with_tiles(const PanelKernels& portable) {
  PanelKernels k = portable;
  k.name = "avx2";
  k.multiply = multiply;
  return k;
}

}  // namespace

const PanelKernels& panel_kernels() {
  static const PanelKernels kernels = with_tiles(portable::panel_kernels());
  return kernels;
}

}  // namespace lathe::avx2
