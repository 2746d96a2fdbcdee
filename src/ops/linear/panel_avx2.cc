#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/lanes_avx2.h"
#include "ops/linear/panel_rows_avx2.h"
#include "ops/row_floats.h"

// Products of panel.h on AVX2. A register holds 8 k's of one output: of 16 neighbouring ones those at even or at odd
// places, which is how two bf16 come apart cheapest. So each output has 8 running sums (of int8 weights 8 sums of
// pairs, 16 k's a register), each over its own k in ascending order.
//
// Few rows meet the weight's rows as they lie, 2 or 4 outputs at a time: memory is fastest where few places are read at
// once. For more, a panel's piece of K is laid out first,
// [register, kPanel], and stays in L1 while tiles of 3 rows by 4 outputs pass.

namespace lathe::avx2 {

namespace {

constexpr int kTileRows = 3, kTileOuts = 4;  // 12 running sums, 3 of x, one of w: 16 registers
constexpr int kFewRows = 12;                 // up to here laying out costs more than widening again for each tile
constexpr int kUnit = 16;                    // k's that become registers together
constexpr int kLine = 64;                    // bytes
constexpr int64_t kAheadBytes = 4 << 10;     // of a weight, fetched early, or one group of outputs
constexpr int64_t kPanelBytes = 16 << 10;

// How 16 values of a weight become kParts registers.
struct Floats {
  using Value = float;  // of x
  using Register = __m256;
  static constexpr int kParts = 2, kLanes = 8, kStreams = 4;  // outputs at a time for one row of x
};
struct F32 : Floats {
  static constexpr int kBytes = 4;
  template <int kPart>
  static Register load(const char* p) {
    const float* f = reinterpret_cast<const float*>(p);
    Register even, odd;
    Lanes::deinterleave(_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8), even, odd);
    return kPart == 0 ? even : odd;
  }
};
struct BF16 : Floats {
  static constexpr int kBytes = 2, kStreams = 2;
  template <int kPart>
  static Register load(const char* p) {
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if constexpr (kPart == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(b, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};
struct E4M3 : Floats {
  static constexpr int kBytes = 1;
  template <int kPart>
  static Register load(const char* p) {
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    bytes = kPart == 0 ? _mm_and_si128(bytes, _mm_set1_epi16(0xff)) : _mm_srli_epi16(bytes, 8);
    const __m256i b = _mm256_cvtepu16_epi32(bytes);
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
  static constexpr int kParts = 1, kLanes = 16, kBytes = 1, kStreams = 4;
  template <int>
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
struct Tail {
  Tail(const char* p, int64_t count) { std::memcpy(bytes, p, count * W::kBytes); }
  alignas(32) char bytes[kUnit * W::kBytes] = {};
};

// Outputs [first, first + C) of a panel whose rows exist; those past the weight's end read its last row.
struct PanelRows {
  const char* data;
  int64_t stride;  // bytes
  int64_t rows;    // at least 1
  const char* at(int64_t out) const { return data + std::min(out, rows - 1) * stride; }
};

// Lines to fetch while C rows of a weight are read: of `from`, which lies as they do. Rows without gaps are fetched in
// the order of addresses, which memory likes best.
struct Ahead {
  const char* from;  // nullptr: nothing
  int64_t next_row, next_step;

  static Ahead lines(const char* from, int64_t stride, int64_t row_bytes, int rows) {
    if (stride == row_bytes) return {from, kLine, rows * kLine};
    return {from, stride, kLine};
  }
};

template <int kParts, class F>
inline __attribute__((always_inline)) void each_part(F&& f) {
  f(std::integral_constant<int, 0>());
  if constexpr (kParts == 2) f(std::integral_constant<int, 1>());
}

// R rows of x against C of the weight; column `at` of sums and further.
template <class W, int R, int C>
void stream(const typename W::Value* const* x, const PanelRows& w, int first_out, int64_t in, Ahead ahead,
            typename W::Register (*sums)[4], int at) {
  using Register = typename W::Register;
  constexpr int kLineValues = kLine / W::kBytes, kUnits = kLineValues / kUnit;
  const char* row[C];
  for (int c = 0; c < C; ++c) row[c] = w.at(first_out + c);
  Register s[R][C];
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) clear(s[r][c]);
  const auto meet = [&](int64_t k, const char* const* from, int64_t byte) __attribute__((always_inline)) {
    each_part<W::kParts>([&](auto part) __attribute__((always_inline)) {
      Register xs[R];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) xs[r] = load_x(x[r] + k + part * W::kLanes);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const Register v = W::template load<part>(from[c] + byte);
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r) s[r][c] = add(s[r][c], xs[r], v);
      }
    });
  };
  int64_t k = 0;
  for (; k + kLineValues <= in; k += kLineValues) {
    if (ahead.from)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) _mm_prefetch(ahead.from + c * ahead.next_row, _MM_HINT_T0);
    ahead.from += ahead.from ? ahead.next_step : 0;
#pragma GCC unroll 4
    for (int u = 0; u < kUnits; ++u) meet(k + u * kUnit, row, (k + u * kUnit) * W::kBytes);
  }
  for (; k + kUnit <= in; k += kUnit) meet(k, row, k * W::kBytes);
  if (k < in)
    for (int c = 0; c < C; ++c) {
      const Tail<W> tail(row[c] + k * W::kBytes, in - k);
      each_part<W::kParts>([&](auto part) {
        for (int r = 0; r < R; ++r)
          s[r][c] = add(s[r][c], load_x(x[r] + k + part * W::kLanes), W::template load<part>(tail.bytes));
      });
    }
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[r][at + c] = s[r][c];
}

// Scales of a quantised product, or none.
void finish(float* values, const PanelBlock& b, int64_t row, int outs) {
  if (!b.x.scale) return;
  const float of_row = b.x.scale[row];
  for (int o = 0; o < outs; ++o) values[o] = values[o] * b.w.scale[(b.first_out + o) * b.w.scale_stride] * of_row;
}

// What is fetched while C outputs of a panel are read: outputs `early` further, or what is met next.
template <class W, int C>
Ahead ahead_of(const PanelBlock& b, const PanelRows& w, int to) {
  const int64_t row_bytes = b.w.in * W::kBytes;
  if (to + C <= w.rows) return Ahead::lines(w.at(to), w.stride, row_bytes, C);
  if (!b.next || w.rows < kPanel) return {nullptr, 0, 0};
  return Ahead::lines(static_cast<const char*>(b.next) + (to - kPanel) * w.stride, w.stride, row_bytes, C);
}

template <class W, int R>
void stream_panel(const PanelBlock& b, const PanelRows& w, int outs, int64_t first, float* values) {
  constexpr int C = R == 1 ? W::kStreams : kTileOuts;
  const typename W::Value* x[R];
  for (int r = 0; r < R; ++r) x[r] = reinterpret_cast<const typename W::Value*>(b.x.at(b.row(first + r)));
  const int early = C * static_cast<int>(std::clamp<int64_t>(kAheadBytes / (C * w.stride), 1, kPanel / C));
  for (int o = 0; o < outs; o += 4) {
    typename W::Register sums[R][4];
    for (int c = 0; c < 4; c += C) {
      const Ahead ahead = first == 0 ? ahead_of<W, C>(b, w, o + c + early) : Ahead{nullptr, 0, 0};
      stream<W, R, C>(x, w, o + c, b.w.in, ahead, sums, c);
    }
    for (int r = 0; r < R; ++r) _mm_storeu_ps(values + (first + r) * kPanel + o, sum4(sums[r]));
  }
  for (int r = 0; r < R; ++r) finish(values + (first + r) * kPanel, b, b.row(first + r), outs);
}

template <class W>
void few(const PanelBlock& b, const PanelRows& w, int outs, float* values) {
  for (int64_t r = 0; r < b.rows;) {
    const int64_t left = b.rows - r, n = left == 4 ? 2 : std::min<int64_t>(left, kTileRows);
    if (n == 1)
      stream_panel<W, 1>(b, w, outs, r, values);
    else if (n == 2)
      stream_panel<W, 2>(b, w, outs, r, values);
    else
      stream_panel<W, 3>(b, w, outs, r, values);
    r += n;
  }
}

// --- many rows

// Units of k from `begin` on, [units·kParts, kPanel] registers; zeros past the weight's end and past its width.
template <class W>
void lay_out(const PanelBlock& b, const PanelRows& w, int outs, int64_t begin, int64_t units,
             typename W::Register* panel) {
  for (int o = 0; o < kPanel; ++o) {
    typename W::Register* to = panel + o;
    const auto put = [&](const char* from) __attribute__((always_inline)) {
      each_part<W::kParts>([&](auto part) { to[part * kPanel] = W::template load<part>(from); });
      to += W::kParts * kPanel;
    };
    const int64_t left = o < outs ? b.w.in - begin : 0, whole = std::min(units, left / kUnit);
    const char* from = w.at(o) + begin * W::kBytes;
    for (int64_t u = 0; u < whole; ++u) put(from + u * kUnit * W::kBytes);
    if (whole < units && whole * kUnit < left)
      put(Tail<W>(from + whole * kUnit * W::kBytes, left - whole * kUnit).bytes);
    for (; to < panel + units * W::kParts * kPanel; to += kPanel) clear(*to);
  }
}

// Weights that are fp32 only after scales by block, or of a dtype that is rare.
struct Scaled : F32 {};

template <>
void lay_out<Scaled>(const PanelBlock& b, const PanelRows& w, int outs, int64_t begin, int64_t units, __m256* panel) {
  constexpr int64_t kMost = kPanelBytes / kPanel / 4;
  alignas(32) float row[kMost];
  const int64_t count = std::min(units * kUnit, b.w.in - begin);
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
    for (int64_t u = 0; u < units; ++u)
      Lanes::deinterleave(Lanes::load(row + u * kUnit), Lanes::load(row + u * kUnit + 8), panel[2 * u * kPanel + o],
                          panel[(2 * u + 1) * kPanel + o]);
  }
}

// Adds `registers` of k of R rows to their running sums, [R, kPanel]; [C outputs at a time].
template <class W, int R>
void tile(const typename W::Value* const* x, const typename W::Register* panel, int64_t registers,
          typename W::Register* sums) {
  using Register = typename W::Register;
  for (int o = 0; o < kPanel; o += kTileOuts) {
    Register s[R][kTileOuts];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kTileOuts; ++c) s[r][c] = load_sum(sums + r * kPanel + o + c);
    const Register* w = panel + o;
    for (int64_t i = 0; i < registers; ++i, w += kPanel) {
      Register xs[R];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) xs[r] = load_x(x[r] + i * W::kLanes);
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
  constexpr int64_t kUnits = kPanelBytes / static_cast<int64_t>(kPanel * W::kParts * sizeof(Register));
  auto* panel = reinterpret_cast<Register*>(scratch.panel);
  auto* sums = reinterpret_cast<Register*>(scratch.sums);
  for (int64_t i = 0; i < b.rows * kPanel; ++i) clear(sums[i]);
  const int64_t all = (b.w.in + kUnit - 1) / kUnit;
  for (int64_t unit = 0; unit < all; unit += kUnits) {
    const int64_t units = std::min(kUnits, all - unit);
    lay_out<W>(b, w, outs, unit * kUnit, units, panel);
    for (int64_t r = 0; r < b.rows; r += kTileRows) {
      const int n = static_cast<int>(std::min<int64_t>(kTileRows, b.rows - r));
      const typename W::Value* x[kTileRows];
      for (int i = 0; i < n; ++i)
        x[i] = reinterpret_cast<const typename W::Value*>(b.x.at(b.row(r + i))) + unit * kUnit;
      Register* s = sums + r * kPanel;
      if (n == 3)
        tile<W, 3>(x, panel, units * W::kParts, s);
      else if (n == 2)
        tile<W, 2>(x, panel, units * W::kParts, s);
      else
        tile<W, 1>(x, panel, units * W::kParts, s);
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
