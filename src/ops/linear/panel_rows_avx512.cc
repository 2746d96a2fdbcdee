#include "ops/linear/panel_rows_avx512.h"

#include <immintrin.h>

#include <cmath>
#include <limits>

#include "ops/row_floats.h"

namespace lathe::avx512 {

namespace {

constexpr float kZeroRow = 1e-30f;  // a row whose largest value is below counts as zeros (linear.h)

inline __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1);
}

inline __m512 widen(__m256i b) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16)); }

// Round to nearest even; a NaN stays one.
inline __m256i narrow(__m512 v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)); }

inline __m512 load_floats(const Rows& x, const char* row, int64_t i, __mmask16 lanes) {
  if (x.dtype == DType::kF32) return _mm512_maskz_loadu_ps(lanes, row + i * 4);
  return widen(_mm256_maskz_loadu_epi16(lanes, row + i * 2));
}

// 16 k's in the order of an fp32 panel: evens and odds of each 8.
inline __m512 panel_order(__m512 v) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15), v);
}

// The row in fp32, padded with zeros to a multiple of 32; tells the largest magnitude's bits.
int32_t read_largest(const Rows& x, int64_t from, float* row) {
  __m512i top = _mm512_setzero_si512();
  const bool plain = x.dtype == DType::kF32 || x.dtype == DType::kBF16;
  const char* data = static_cast<const char*>(x.at(from));
  if (!plain) read_row(x, from, row);
  for (int64_t i = 0; i < (x.width + 31) / 32 * 32; i += 16) {
    const __mmask16 lanes = i < x.width ? first_lanes(x.width - i) : static_cast<__mmask16>(0);
    const __m512 v = plain ? load_floats(x, data, i, lanes) : _mm512_maskz_loadu_ps(lanes, row + i);
    _mm512_storeu_ps(row + i, v);
    top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
  }
  return _mm512_reduce_max_epi32(top);
}

// Steps of a quantised row: inverse is top/max|x|; 0 where every step is 0.
struct Steps {
  float scale, inverse;
};

Steps steps_of(int32_t largest_bits, float top) {
  const float largest = float_bits::to(static_cast<uint32_t>(largest_bits));
  if (largest_bits >= 0x7f800000) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < kZeroRow) return {0, 0};
  return {largest / top, top / largest};
}

void prepare_i8(const Rows& x, int64_t from, const PreparedRows& to, int64_t row, float* floats) {
  auto* out = reinterpret_cast<__m128i*>(to.at(row));
  if (x.dtype == DType::kI8) {
    const char* in = static_cast<const char*>(x.at(from));
    for (int64_t i = 0; i < to.row_bytes; i += 16, ++out) {
      const __m128i v =
          _mm_maskz_loadu_epi8(i < x.width ? first_lanes(x.width - i) : static_cast<__mmask16>(0), in + i);
      _mm_storeu_si128(out, _mm_xor_si128(v, _mm_set1_epi8(static_cast<char>(0x80))));
    }
    to.scale[row] = x.scale[from];
    return;
  }
  const Steps steps = steps_of(read_largest(x, from, floats), 127);
  const __m512 inverse = _mm512_set1_ps(steps.inverse);
  const bool none = steps.inverse == 0;
  for (int64_t i = 0; i < to.row_bytes; i += 16, ++out) {
    const __m512 v = none ? _mm512_setzero_ps() : _mm512_mul_ps(_mm512_loadu_ps(floats + i), inverse);
    _mm_storeu_si128(out, _mm512_cvtusepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(128))));
  }
  to.scale[row] = steps.scale;
}

// The nearest number of e4m3, magnitudes up to 448 and a little: to even; steps of 2^-9 below 2^-6.
inline __m512 nearest_e4m3(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  const __m512 magnitude = _mm512_castsi512_ps(_mm512_xor_si512(bits, sign));
  const __m512i m = _mm512_castps_si512(magnitude);
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(m, 20), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(m, _mm512_add_epi32(_mm512_set1_epi32(0x7ffff), even));
  const __m512 normal = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xfff00000u))));
  const __m512 shift = _mm512_set1_ps(1.5f * 16384);  // its last bit is 2^-9
  const __m512 tiny = _mm512_sub_ps(_mm512_add_ps(magnitude, shift), shift);
  const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.015625f), _CMP_LT_OQ);
  const __m512 rounded = _mm512_min_ps(_mm512_mask_mov_ps(normal, small, tiny), _mm512_set1_ps(448));
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(rounded), sign));
}

void prepare_e4m3(const Rows& x, int64_t from, const PreparedRows& to, int64_t row, float* floats) {
  auto* out = reinterpret_cast<float*>(to.at(row));
  Steps steps{0, 0};
  const bool ready = x.dtype == DType::kE4M3;
  if (ready) {
    Rows stored = x;
    stored.scale = nullptr;
    read_largest(stored, from, floats);
    steps.scale = x.scale[from];
  } else {
    steps = steps_of(read_largest(x, from, floats), 448);
  }
  const __m512 inverse = _mm512_set1_ps(steps.inverse);
  for (int64_t i = 0; i < to.row_bytes / 4; i += 16) {
    __m512 v = _mm512_loadu_ps(floats + i);
    if (!ready) v = steps.inverse == 0 ? _mm512_setzero_ps() : nearest_e4m3(_mm512_mul_ps(v, inverse));
    _mm512_storeu_ps(out + i, panel_order(v));
  }
  to.scale[row] = steps.scale;
}

void prepare_f32(const Rows& x, int64_t from, const PreparedRows& to, int64_t row) {
  auto* out = reinterpret_cast<float*>(to.at(row));
  const bool plain = x.dtype == DType::kF32 || x.dtype == DType::kBF16;
  const char* data = static_cast<const char*>(x.at(from));
  if (!plain) read_row(x, from, out);
  for (int64_t i = 0; i < x.width; i += 16) {
    const __mmask16 lanes = first_lanes(x.width - i);
    _mm512_storeu_ps(out + i,
                     panel_order(plain ? load_floats(x, data, i, lanes) : _mm512_maskz_loadu_ps(lanes, out + i)));
  }
}

void prepare_bf16(const Rows& x, int64_t from, const PreparedRows& to, int64_t row) {
  const char* in = static_cast<const char*>(x.at(from));
  char* out = to.at(row);
  for (int64_t i = 0; i < x.width; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 2),
                        _mm256_maskz_loadu_epi16(first_lanes(x.width - i), in + i * 2));
}

// e^v for v <= 0 or so, to 1 ulp: 2^n·p(r), |r| <= ln2/2. Above 88.7 infinity, below -104 zero; a NaN stays one.
inline __m512 exp_ps(__m512 v) {
  v = _mm512_min_ps(_mm512_set1_ps(100), _mm512_max_ps(_mm512_set1_ps(-110), v));  // a NaN in the second operand passes
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(1.44269504f)), 8);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), v);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, n);
}

}  // namespace

void prepare_row(const Rows& x, int64_t from_row, const PreparedRows& to, int64_t to_row, float* row_scratch) {
  switch (to.operand) {
    case Operand::kF32:
      return prepare_f32(x, from_row, to, to_row);
    case Operand::kBF16:
      return prepare_bf16(x, from_row, to, to_row);
    case Operand::kE4M3:
      return prepare_e4m3(x, from_row, to, to_row, row_scratch);
    case Operand::kI8:
      return prepare_i8(x, from_row, to, to_row, row_scratch);
  }
}

void store_values(const float* values, int64_t rows, const float* bias, const Rows& y, int64_t first_row,
                  int64_t first_out, int outs, bool round_bf16) {
  const int bytes = dtype_bytes(y.dtype), second = outs - kPanel;
  const float* next = values + kMaxBlockRows * kPanel;
  const __mmask16 lanes = first_lanes(outs), next_lanes = second > 0 ? first_lanes(second) : static_cast<__mmask16>(0);
  const __m512 b0 = bias ? _mm512_maskz_loadu_ps(lanes, bias) : _mm512_setzero_ps();
  const __m512 b1 = bias && second > 0 ? _mm512_maskz_loadu_ps(next_lanes, bias + kPanel) : _mm512_setzero_ps();
  char* to = static_cast<char*>(y.data) + (first_row * y.stride + first_out) * bytes;
  for (int64_t r = 0; r < rows; ++r, to += y.stride * bytes) {
    __m512 v0 = _mm512_load_ps(values + r * kPanel),
           v1 = second > 0 ? _mm512_load_ps(next + r * kPanel) : _mm512_setzero_ps();
    if (bias) v0 = _mm512_add_ps(v0, b0), v1 = _mm512_add_ps(v1, b1);
    if (y.dtype == DType::kBF16) {
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(narrow(v0)), narrow(v1), 1);
      if (outs == 2 * kPanel)
        _mm512_storeu_si512(to, both);
      else
        _mm512_mask_storeu_epi16(to, next_lanes << 16 | lanes, both);
      continue;
    }
    if (round_bf16) v0 = widen(narrow(v0)), v1 = widen(narrow(v1));
    _mm512_mask_storeu_ps(to, lanes, v0);
    if (second > 0) _mm512_mask_storeu_ps(to + 64, next_lanes, v1);
  }
}

void swiglu_values(float* gate, const float* up, int64_t rows, int outs, const float* gate_bias, const float* up_bias,
                   float limit) {
  const __m512 gb = gate_bias ? _mm512_maskz_loadu_ps(first_lanes(outs), gate_bias) : _mm512_setzero_ps();
  const __m512 ub = up_bias ? _mm512_maskz_loadu_ps(first_lanes(outs), up_bias) : _mm512_setzero_ps();
  const __m512 high = _mm512_set1_ps(limit), low = _mm512_set1_ps(-limit), one = _mm512_set1_ps(1);
  for (int64_t r = 0; r < rows; ++r) {
    __m512 g = _mm512_load_ps(gate + r * kPanel), u = _mm512_load_ps(up + r * kPanel);
    if (gate_bias) g = _mm512_add_ps(g, gb);
    if (up_bias) u = _mm512_add_ps(u, ub);
    if (limit > 0) g = _mm512_min_ps(high, g), u = _mm512_max_ps(low, _mm512_min_ps(high, u));  // a NaN passes
    const __m512 bottom = _mm512_add_ps(one, exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), g)));
    _mm512_store_ps(gate + r * kPanel, _mm512_mul_ps(_mm512_div_ps(g, bottom), u));
  }
}

void put_values(const float* values, int64_t rows, int outs, bool round_bf16, const PreparedRows& to, int64_t first_row,
                int64_t first_out) {
  const __mmask16 lanes = first_lanes(outs);
  for (int64_t r = 0; r < rows; ++r) {
    __m512 v = _mm512_maskz_load_ps(lanes, values + r * kPanel);
    if (to.operand == Operand::kBF16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.at(first_row + r) + first_out * 2), narrow(v));
      continue;
    }
    if (round_bf16) v = widen(narrow(v));
    _mm512_storeu_ps(to.at(first_row + r) + first_out * 4, panel_order(v));
  }
}

void add_weighted_values(const float* values, int64_t rows, int outs, const float* bias, const float* weight,
                         const int32_t* index, float* sum, int64_t sum_stride) {
  const __mmask16 lanes = first_lanes(outs);
  const __m512 b = bias ? _mm512_maskz_loadu_ps(lanes, bias) : _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; ++r) {
    float* to = sum + index[r] * sum_stride;
    __m512 v = _mm512_load_ps(values + r * kPanel);
    if (bias) v = _mm512_add_ps(v, b);
    _mm512_mask_storeu_ps(to, lanes, _mm512_fmadd_ps(_mm512_set1_ps(weight[r]), v, _mm512_maskz_loadu_ps(lanes, to)));
  }
}

}  // namespace lathe::avx512
