#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/linear/panel_rows_avx2.h"
#include "ops/row_floats.h"

// Products of panel.h on AVX2. A register holds 8 k's of one output, so each output has 8 running sums (of int8 weights
// 8 sums of pairs, 16 k's a register), each over its own k in ascending order.
//
// Few rows meet the weight's rows as they lie, 8 outputs at a time. For more, a panel's piece of K is laid out first,
// [unit, kPanel] registers, and stays in L1 while tiles of 3 rows by 4 outputs pass.

namespace lathe::avx2 {

namespace {

constexpr int kTileRows = 3, kTileOuts = 4;  // 12 running sums, 3 of x, one of w: 16 registers
constexpr int kFewRows = 12;                 // up to here laying out costs more than widening again for each tile
constexpr int kStreams = 8;                  // rows of the weight that are read at once for one row of x
constexpr int kLine = 64;                    // bytes
constexpr int64_t kPanelBytes = 16 << 10;

// How values of a weight become a register. kWidth: k's of a unit; Sum: the type of a lane of a running sum.
struct F32 {
  using Value = float;
  using Register = __m256;
  static constexpr int kWidth = 8, kBytes = 4;
  static Register load(const char* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct BF16 : F32 {
  static constexpr int kBytes = 2;
  static Register load(const char* p) {
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
  }
};
struct E4M3 : F32 {
  static constexpr int kBytes = 1;
  static Register load(const char* p) {
    const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i magnitude = _mm256_and_si256(b, _mm256_set1_epi32(0x7f));
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(b, magnitude), 24);
    // Exponents are 120 apart; multiplying mends the subnormal ones, too.
    const __m256 v = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)), _mm256_set1_ps(0x1p120f));
    const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
    return _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_or_si256(sign, nan)));
  }
};
struct I8 {
  using Value = int16_t;
  using Register = __m256i;
  static constexpr int kWidth = 16, kBytes = 1;
  static Register load(const char* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

inline __m256 load_x(const float* p) { return _mm256_loadu_ps(p); }
inline __m256i load_x(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256 load_sum(const __m256* p) { return _mm256_load_ps(reinterpret_cast<const float*>(p)); }
inline __m256i load_sum(const __m256i* p) { return _mm256_load_si256(p); }
inline void store_sum(__m256* p, __m256 v) { _mm256_store_ps(reinterpret_cast<float*>(p), v); }
inline void store_sum(__m256i* p, __m256i v) { _mm256_store_si256(p, v); }
inline __m256 add(__m256 sum, __m256 x, __m256 w) { return _mm256_fmadd_ps(x, w, sum); }
inline __m256i add(__m256i sum, __m256i x, __m256i w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
inline void clear(__m256& sum) { sum = _mm256_setzero_ps(); }
inline void clear(__m256i& sum) { sum = _mm256_setzero_si256(); }

// Four outputs' running sums, each added up.
inline __m128 sum4(const __m256* s) {
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}
inline __m128 sum4(const __m256i* s) {
  const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
  return _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}

// The weight's last, partial unit of a row, filled up with zeros: rows of x are.
template <class W>
typename W::Register load_tail(const char* p, int64_t count) {
  alignas(32) char part[W::kWidth * W::kBytes] = {};
  std::memcpy(part, p, count * W::kBytes);
  return W::load(part);
}

// Outputs [first, first + C) of a panel whose rows exist; those past the weight's end read its last row.
struct PanelRows {
  const char* data;
  int64_t stride;  // bytes
  int64_t rows;    // at least 1
  const char* at(int64_t out) const { return data + std::min(out, rows - 1) * stride; }
};

// R rows of x against C of the weight. Of rows that lie together, `ahead` bytes further lies what will be wanted next.
template <class W, int R, int C>
void stream(const typename W::Value* const* x, const PanelRows& w, int first_out, int64_t in, int64_t ahead,
            typename W::Register (*sums)[C]) {
  using Register = typename W::Register;
  constexpr int kUnitsOfLine = kLine / (W::kWidth * W::kBytes);
  const char* row[C];
  for (int c = 0; c < C; ++c) row[c] = w.at(first_out + c);
  Register s[R][C];
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) clear(s[r][c]);
  const auto meet = [&](int64_t k, auto load) __attribute__((always_inline)) {
    Register xs[R];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) xs[r] = load_x(x[r] + k);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Register v = load(row[c] + k * W::kBytes);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) s[r][c] = add(s[r][c], xs[r], v);
    }
  };
  int64_t k = 0;
  for (; k + kUnitsOfLine * W::kWidth <= in; k += kUnitsOfLine * W::kWidth) {
    if (ahead)
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) _mm_prefetch(row[c] + k * W::kBytes + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
    for (int u = 0; u < kUnitsOfLine; ++u) meet(k + u * W::kWidth, W::load);
  }
  for (; k + W::kWidth <= in; k += W::kWidth) meet(k, W::load);
  if (k < in) meet(k, [&](const char* p) { return load_tail<W>(p, in - k); });
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[r][c] = s[r][c];
}

// Scales of a quantised product, or none.
void finish(float* values, const PanelBlock& b, int64_t row, int outs) {
  if (!b.x.scale) return;
  const float of_row = b.x.scale[row];
  for (int o = 0; o < outs; ++o) values[o] = values[o] * b.w.scale[(b.first_out + o) * b.w.scale_stride] * of_row;
}

template <class W, int R, int C>
void stream_panel(const PanelBlock& b, const PanelRows& w, int outs, int64_t first, float* values) {
  const typename W::Value* x[R];
  for (int r = 0; r < R; ++r) x[r] = reinterpret_cast<const typename W::Value*>(b.x.at(b.row(first + r)));
  for (int o = 0; o < outs; o += C) {
    typename W::Register sums[R][C];
    const bool inside = o + 2 * C <= w.rows;  // the next C rows are this panel's
    const bool next = !inside && b.next && outs == kPanel;
    const int64_t ahead = inside ? C * w.stride : next ? static_cast<const char*>(b.next) - w.at(o) : 0;
    stream<W, R, C>(x, w, o, b.w.in, first == 0 ? ahead : 0, sums);
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; c += 4) _mm_storeu_ps(values + (first + r) * kPanel + o + c, sum4(sums[r] + c));
  }
  for (int r = 0; r < R; ++r) finish(values + (first + r) * kPanel, b, b.row(first + r), outs);
}

template <class W>
void few(const PanelBlock& b, const PanelRows& w, int outs, float* values) {
  for (int64_t r = 0; r < b.rows;) {
    const int64_t left = b.rows - r, n = left == 4 ? 2 : std::min<int64_t>(left, kTileRows);
    if (n == 1)
      stream_panel<W, 1, kStreams>(b, w, outs, r, values);
    else if (n == 2)
      stream_panel<W, 2, kTileOuts>(b, w, outs, r, values);
    else
      stream_panel<W, 3, kTileOuts>(b, w, outs, r, values);
    r += n;
  }
}

// --- many rows

// Units of k from `begin` on, [units, kPanel] registers; zeros past the weight's end and past its width.
template <class W>
void lay_out(const PanelBlock& b, const PanelRows& w, int outs, int64_t begin, int64_t units,
             typename W::Register* panel) {
  for (int o = 0; o < kPanel; ++o) {
    typename W::Register* to = panel + o;
    const char* from = w.at(o) + begin * W::kBytes;
    int64_t u = 0;
    if (o < outs)
      for (; u < units && begin + (u + 1) * W::kWidth <= b.w.in; ++u, from += W::kWidth * W::kBytes)
        to[u * kPanel] = W::load(from);
    if (o < outs && u < units && begin + u * W::kWidth < b.w.in) {
      to[u * kPanel] = load_tail<W>(from, b.w.in - begin - u * W::kWidth);
      ++u;
    }
    for (; u < units; ++u) clear(to[u * kPanel]);
  }
}

// Weights that are fp32 only after scales by block, or of a dtype that is rare.
struct Scaled : F32 {};

template <>
void lay_out<Scaled>(const PanelBlock& b, const PanelRows& w, int outs, int64_t begin, int64_t units, __m256* panel) {
  constexpr int64_t kMost = kPanelBytes / kPanel / 4;
  alignas(32) float row[kMost];
  const int64_t count = std::min(units * F32::kWidth, b.w.in - begin);
  for (int o = 0; o < kPanel; ++o) {
    std::memset(row, 0, sizeof row);
    if (o < outs) {
      read_floats(w.at(o) + begin * dtype_bytes(b.w.dtype), b.w.dtype, count, row);
      const float* scale = b.w.scale ? b.w.scale + (b.first_out + o) / b.w.block_out * b.w.scale_stride : nullptr;
      for (int64_t i = 0; scale && i < count;) {
        const int64_t block = (begin + i) / b.w.block_in, end = std::min(count, (block + 1) * b.w.block_in - begin);
        for (; i < end; ++i) row[i] *= scale[block];
      }
    }
    for (int64_t u = 0; u < units; ++u) panel[u * kPanel + o] = F32::load(reinterpret_cast<const char*>(row + u * 8));
  }
}

// Adds `units` of k of R rows to their running sums, [R, kPanel]; [C outputs at a time].
template <class W, int R>
void tile(const typename W::Value* const* x, const typename W::Register* panel, int64_t units,
          typename W::Register* sums) {
  using Register = typename W::Register;
  for (int o = 0; o < kPanel; o += kTileOuts) {
    Register s[R][kTileOuts];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kTileOuts; ++c) s[r][c] = load_sum(sums + r * kPanel + o + c);
    const Register* w = panel + o;
    for (int64_t u = 0; u < units; ++u, w += kPanel) {
      Register xs[R];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) xs[r] = load_x(x[r] + u * W::kWidth);
#pragma GCC unroll 4
      for (int c = 0; c < kTileOuts; ++c) {
        const Register v = load_sum(w + c);
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r) s[r][c] = add(s[r][c], xs[r], v);
      }
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kTileOuts; ++c) store_sum(sums + r * kPanel + o + c, s[r][c]);
  }
}

template <class W>
void many(const PanelBlock& b, const PanelRows& w, int outs, float* values, const PanelScratch& scratch) {
  using Register = typename W::Register;
  constexpr int64_t kUnits = kPanelBytes / static_cast<int64_t>(kPanel * sizeof(Register));
  auto* panel = reinterpret_cast<Register*>(scratch.panel);
  auto* sums = reinterpret_cast<Register*>(scratch.sums);
  for (int64_t i = 0; i < b.rows * kPanel; ++i) clear(sums[i]);
  const int64_t all = (b.w.in + W::kWidth - 1) / W::kWidth;
  for (int64_t unit = 0; unit < all; unit += kUnits) {
    const int64_t units = std::min(kUnits, all - unit);
    lay_out<W>(b, w, outs, unit * W::kWidth, units, panel);
    for (int64_t r = 0; r < b.rows; r += kTileRows) {
      const int n = static_cast<int>(std::min<int64_t>(kTileRows, b.rows - r));
      const typename W::Value* x[kTileRows];
      for (int i = 0; i < n; ++i)
        x[i] = reinterpret_cast<const typename W::Value*>(b.x.at(b.row(r + i))) + unit * W::kWidth;
      Register* s = sums + r * kPanel;
      if (n == 3)
        tile<W, 3>(x, panel, units, s);
      else if (n == 2)
        tile<W, 2>(x, panel, units, s);
      else
        tile<W, 1>(x, panel, units, s);
    }
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    for (int o = 0; o < kPanel; o += 4) _mm_storeu_ps(values + r * kPanel + o, sum4(sums + r * kPanel + o));
    finish(values + r * kPanel, b, b.row(r), outs);
  }
}

template <class W>
void multiply_as(const PanelBlock& b, float* values, const PanelScratch& s) {
  const int64_t rows = std::min<int64_t>(kPanel, b.w.out - b.first_out);
  const PanelRows w{static_cast<const char*>(b.w.at(b.first_out)), b.w.stride * dtype_bytes(b.w.dtype), rows};
  const int outs = static_cast<int>(rows);
  if constexpr (!std::is_same_v<W, Scaled>)
    if (b.rows <= kFewRows) return few<W>(b, w, outs, values);
  many<W>(b, w, outs, values, s);
}

void multiply(const PanelBlock& b, float* values, const PanelScratch& s) {
  if (b.x.operand == Operand::kI8) return multiply_as<I8>(b, values, s);
  if (b.x.operand == Operand::kE4M3) return multiply_as<E4M3>(b, values, s);
  if (b.w.dtype == DType::kF32 && !b.w.scale) return multiply_as<F32>(b, values, s);
  if (b.w.dtype == DType::kBF16 && !b.w.scale) return multiply_as<BF16>(b, values, s);
  multiply_as<Scaled>(b, values, s);
}

Operand operand(DType, const Weight& w) {
  if (w.is_w8a8()) return w.dtype == DType::kI8 ? Operand::kI8 : Operand::kE4M3;
  return Operand::kF32;
}

int64_t row_bytes(Operand o, int64_t width) { return (width + 15) / 16 * 16 * (o == Operand::kI8 ? 2 : 4); }

}  // namespace

const PanelKernels& panel_kernels() {
  static constexpr PanelKernels kernels{"avx2",       operand,       row_bytes,  prepare_row,        multiply,
                                        store_values, swiglu_values, put_values, add_weighted_values};
  return kernels;
}

}  // namespace lathe::avx2
