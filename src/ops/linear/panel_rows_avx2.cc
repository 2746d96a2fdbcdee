#include "ops/linear/panel_rows_avx2.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/lanes_avx2.h"
#include "ops/row_floats.h"

namespace lathe::avx2 {

namespace {

using V = Lanes::V;
constexpr int kCount = Lanes::kCount;
constexpr float kZeroRow = 1e-30f;  // a row whose largest value is below counts as zeros (linear.h)

int64_t padded(int64_t width) { return (width + 15) / 16 * 16; }

// The row in fp32, padded with zeros; quantised values without their scale.
void read_padded(Rows x, int64_t from, bool scaled, float* row) {
  if (!scaled) x.scale = nullptr;
  std::memset(row + x.width, 0, (padded(x.width) - x.width) * sizeof(float));
  if (x.dtype != DType::kBF16) return read_row(x, from, row);
  const bf16* in = static_cast<const bf16*>(x.at(from));
  int64_t i = 0;
  for (; i + kCount <= x.width; i += kCount) Lanes::store(row + i, Lanes::load(in + i));
  if (const int rest = static_cast<int>(x.width - i)) Lanes::store(row + i, Lanes::load(in + i, rest), rest);
}

// 16 values in order, as an fp32 product reads them: those at even places, then the others.
void store_unit(float* to, V first, V second) {
  V even, odd;
  Lanes::deinterleave(first, second, even, odd);
  Lanes::store(to, even), Lanes::store(to + kCount, odd);
}

void prepare_f32(const Rows& x, int64_t from, const PreparedRows& to, int64_t row) {
  auto* out = reinterpret_cast<float*>(to.at(row));
  int64_t i = 0;
  if (x.dtype == DType::kBF16) {
    const bf16* in = static_cast<const bf16*>(x.at(from));
    const auto put = [&](V even, V odd) { Lanes::store(out + i, even), Lanes::store(out + i + kCount, odd); };
    V even, odd;
    for (; i + 2 * kCount <= x.width; i += 2 * kCount) Lanes::split(in + i, even, odd), put(even, odd);
    if (i < x.width) Lanes::split(in + i, static_cast<int>(x.width - i), even, odd), put(even, odd);
    return;
  }
  read_padded(x, from, true, out);
  for (; i < x.width; i += 2 * kCount) store_unit(out + i, Lanes::load(out + i), Lanes::load(out + i + kCount));
}

// Steps of a quantised row: inverse is top/max|x|; 0 where every step is 0.
struct Steps {
  float scale, inverse;
};

Steps steps_of(const float* row, int64_t width, float top) {
  // Magnitudes compare as integers, and infinity and NaN lie above all others.
  __m256i largest = _mm256_setzero_si256();
  for (int64_t i = 0; i < padded(width); i += kCount) {
    const __m256i bits = _mm256_castps_si256(Lanes::load(row + i));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  alignas(32) float lanes[kCount];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  float top_value = 0;
  for (float v : lanes) {
    if (!std::isfinite(v)) return {std::numeric_limits<float>::quiet_NaN(), 0};
    top_value = std::max(top_value, v);
  }
  if (top_value < kZeroRow) return {0, 0};
  return {top_value / top, top / top_value};
}

// The nearest number of e4m3, magnitudes up to 448 and a little: to even; steps of 2^-9 below 2^-6.
V nearest_e4m3(V v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  const __m256i m = _mm256_xor_si256(bits, sign);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(m, 20), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(m, _mm256_add_epi32(_mm256_set1_epi32(0x7ffff), even));
  const V normal = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xfff00000u))));
  const V shift = Lanes::set(1.5f * 16384);  // its last bit is 2^-9
  const V magnitude = _mm256_castsi256_ps(m), tiny = _mm256_sub_ps(_mm256_add_ps(magnitude, shift), shift);
  const V small = _mm256_cmp_ps(magnitude, Lanes::set(0.015625f), _CMP_LT_OQ);
  const V rounded = Lanes::min(_mm256_blendv_ps(normal, tiny, small), Lanes::set(448));
  return _mm256_or_ps(rounded, _mm256_castsi256_ps(sign));
}

void prepare_i8(const Rows& x, int64_t from, const PreparedRows& to, int64_t row, float* floats) {
  auto* out = reinterpret_cast<int16_t*>(to.at(row));
  const bool ready = x.dtype == DType::kI8;
  read_padded(x, from, !ready, floats);
  const Steps steps = ready ? Steps{x.scale[from], 1} : steps_of(floats, x.width, 127);
  to.scale[row] = steps.scale;
  if (steps.inverse == 0) {
    std::memset(out, 0, to.row_bytes);
    return;
  }
  const V inverse = Lanes::set(steps.inverse);
  for (int64_t i = 0; i < padded(x.width); i += 2 * kCount) {
    const __m256i a = _mm256_cvtps_epi32(Lanes::load(floats + i) * inverse),
                  b = _mm256_cvtps_epi32(Lanes::load(floats + i + kCount) * inverse);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
  }
}

void prepare_e4m3(const Rows& x, int64_t from, const PreparedRows& to, int64_t row) {
  auto* out = reinterpret_cast<float*>(to.at(row));
  const bool ready = x.dtype == DType::kE4M3;
  read_padded(x, from, !ready, out);
  const Steps steps = ready ? Steps{x.scale[from], 1} : steps_of(out, x.width, 448);
  to.scale[row] = steps.scale;
  const auto step = [&](V v) {
    if (ready) return v;
    return steps.inverse == 0 ? Lanes::zero() : nearest_e4m3(v * Lanes::set(steps.inverse));
  };
  for (int64_t i = 0; i < padded(x.width); i += 2 * kCount)
    store_unit(out + i, step(Lanes::load(out + i)), step(Lanes::load(out + i + kCount)));
}

// Of one row, `outs` values in registers: the first min(outs, kCount), and the others.
template <class F>
void each_register(int outs, F&& f) {
  for (int i = 0; i < outs; i += kCount) f(i, std::min(kCount, outs - i));
}

V load_bias(const float* bias, int i, int n) { return bias ? Lanes::load(bias + i, n) : Lanes::zero(); }

}  // namespace

void prepare_row(const Rows& x, int64_t from_row, const PreparedRows& to, int64_t to_row, float* row_scratch) {
  if (to.operand == Operand::kI8) return prepare_i8(x, from_row, to, to_row, row_scratch);
  if (to.operand == Operand::kE4M3) return prepare_e4m3(x, from_row, to, to_row);
  prepare_f32(x, from_row, to, to_row);
}

void store_values(const float* values, int64_t rows, const float* bias, const Rows& y, int64_t first_row,
                  int64_t first_out, int outs, bool round_bf16) {
  for (int block = 0; block < outs; block += kPanel) {
    const float* from = values + block / kPanel * kMaxBlockRows * kPanel;
    each_register(std::min(kPanel, outs - block), [&](int i, int n) {
      const V b = load_bias(bias, block + i, n);
      char* to = static_cast<char*>(y.at(first_row)) + (first_out + block + i) * dtype_bytes(y.dtype);
      for (int64_t r = 0; r < rows; ++r, to += y.stride * dtype_bytes(y.dtype)) {
        V v = Lanes::load(from + r * kPanel + i);
        if (bias) v = v + b;
        if (y.dtype == DType::kBF16) {
          n == kCount ? Lanes::store(reinterpret_cast<bf16*>(to), v) : Lanes::store(reinterpret_cast<bf16*>(to), v, n);
          continue;
        }
        if (round_bf16) v = Lanes::round_bf16(v);
        n == kCount ? Lanes::store(reinterpret_cast<float*>(to), v) : Lanes::store(reinterpret_cast<float*>(to), v, n);
      }
    });
  }
}

void swiglu_values(float* gate, const float* up, int64_t rows, int outs, const float* gate_bias, const float* up_bias,
                   float limit) {
  each_register(outs, [&](int i, int n) {
    const V gb = load_bias(gate_bias, i, n), ub = load_bias(up_bias, i, n);
    const V high = Lanes::set(limit), low = Lanes::set(-limit), one = Lanes::set(1);
    for (int64_t r = 0; r < rows; ++r) {
      V g = Lanes::load(gate + r * kPanel + i), u = Lanes::load(up + r * kPanel + i);
      if (gate_bias) g = g + gb;
      if (up_bias) u = u + ub;
      if (limit > 0) g = Lanes::min(high, g), u = Lanes::max(low, Lanes::min(high, u));  // a NaN passes
      Lanes::store(gate + r * kPanel + i, g / (one + Lanes::exp(-g)) * u);
    }
  });
}

void put_values(const float* values, int64_t rows, int outs, bool round_bf16, const PreparedRows& to, int64_t first_row,
                int64_t first_out) {
  for (int64_t r = 0; r < rows; ++r) {
    V v[2];
    for (int i = 0; i < 2; ++i) {
      const int n = std::clamp(outs - i * kCount, 0, kCount);
      v[i] = Lanes::load(values + r * kPanel + i * kCount, n);
      if (round_bf16) v[i] = Lanes::round_bf16(v[i]);
    }
    store_unit(reinterpret_cast<float*>(to.at(first_row + r)) + first_out, v[0], v[1]);
  }
}

void add_weighted_values(const float* values, int64_t rows, int outs, const float* bias, const float* weight,
                         const int32_t* index, float* sum, int64_t sum_stride) {
  each_register(outs, [&](int i, int n) {
    const V b = load_bias(bias, i, n);
    for (int64_t r = 0; r < rows; ++r) {
      float* to = sum + index[r] * sum_stride + i;
      V v = Lanes::load(values + r * kPanel + i);
      if (bias) v = v + b;
      if (n == kCount)
        Lanes::store(to, Lanes::fma(Lanes::set(weight[r]), v, Lanes::load(to)));
      else
        Lanes::store(to, Lanes::fma(Lanes::set(weight[r]), v, Lanes::load(to, n)), n);
    }
  });
}

}  // namespace lathe::avx2
