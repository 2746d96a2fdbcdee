#include "ops/linear/panel_portable.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/row_floats.h"

namespace lathe::portable {

namespace {

constexpr int64_t kPieceK = 256;  // of an fp32 panel 16 KB
constexpr float kZeroRow = 1e-30f;

// --- rows

struct Steps {
  float scale, inverse;
};

Steps steps_of(const float* row, int64_t width, float top) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < width; ++i) finite &= std::isfinite(row[i]), largest = std::max(largest, std::fabs(row[i]));
  if (!finite) return {std::numeric_limits<float>::quiet_NaN(), 0};
  return largest < kZeroRow ? Steps{0, 0} : Steps{largest / top, top / largest};
}

void prepare(const Rows& x, int64_t from, const PreparedRows& to, int64_t row, float* floats) {
  char* out = to.at(row);
  std::memset(out, 0, to.row_bytes);
  const bool quantised = to.operand == Operand::kI8 || to.operand == Operand::kE4M3;
  if (!quantised) return read_row(x, from, reinterpret_cast<float*>(out));
  const bool int8 = to.operand == Operand::kI8;
  const bool ready = x.dtype == (int8 ? DType::kI8 : DType::kE4M3);
  Rows stored = x;
  if (ready) stored.scale = nullptr;
  read_row(stored, from, floats);
  const Steps steps = ready ? Steps{x.scale[from], 1} : steps_of(floats, x.width, int8 ? 127 : 448);
  to.scale[row] = steps.scale;
  if (steps.inverse == 0) return;
  for (int64_t i = 0; i < x.width; ++i) {
    const float step = floats[i] * steps.inverse;
    if (int8)
      reinterpret_cast<int16_t*>(out)[i] = static_cast<int16_t>(std::lrint(step));
    else
      reinterpret_cast<float*>(out)[i] = to_float(to_e4m3(step));
  }
}

// --- values

void store(const float* values, int64_t rows, const float* bias, const Rows& y, int64_t first_row, int64_t first_out,
           int outs, bool round_to_bf16) {
  for (int64_t r = 0; r < rows; ++r) {
    float v[2 * kPanel];
    for (int i = 0; i < outs; ++i) {
      v[i] = values[(i / kPanel * kMaxBlockRows + r) * kPanel + i % kPanel] + (bias ? bias[i] : 0);
      if (round_to_bf16) v[i] = round_bf16(v[i]);
    }
    write_floats(static_cast<char*>(y.at(first_row + r)) + first_out * dtype_bytes(y.dtype), y.dtype, outs, v);
  }
}

void swiglu(float* gate, const float* up, int64_t rows, int outs, const float* gate_bias, const float* up_bias,
            float limit) {
  for (int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < outs; ++i) {
      float g = gate[r * kPanel + i] + (gate_bias ? gate_bias[i] : 0),
            u = up[r * kPanel + i] + (up_bias ? up_bias[i] : 0);
      if (limit > 0) {  // written so that a NaN passes
        if (g > limit) g = limit;
        if (u > limit) u = limit;
        if (u < -limit) u = -limit;
      }
      gate[r * kPanel + i] = g / (1 + std::exp(-g)) * u;
    }
}

void put(const float* values, int64_t rows, int outs, bool round_to_bf16, const PreparedRows& to, int64_t first_row,
         int64_t first_out) {
  for (int64_t r = 0; r < rows; ++r) {
    float* out = reinterpret_cast<float*>(to.at(first_row + r)) + first_out;
    for (int i = 0; i < kPanel; ++i) {
      const float v = i < outs ? values[r * kPanel + i] : 0;
      out[i] = round_to_bf16 ? round_bf16(v) : v;
    }
  }
}

void add_weighted(const float* values, int64_t rows, int outs, const float* bias, const float* weight,
                  const int32_t* index, float* sum, int64_t sum_stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < outs; ++i)
      sum[index[r] * sum_stride + i] += weight[r] * (values[r * kPanel + i] + (bias ? bias[i] : 0));
}

// --- panels

// k in [begin, begin + count) of one output, in fp32 with block scales applied; W8A8 values stay steps.
void read_weight(const Weight& w, int64_t out, int64_t begin, int64_t count, float* to) {
  read_floats(static_cast<const char*>(w.at(out)) + begin * dtype_bytes(w.dtype), w.dtype, count, to);
  if (w.scale && !w.is_w8a8())
    for (int64_t i = 0; i < count; ++i) to[i] *= w.scale[out / w.block_out * w.scale_stride + (begin + i) / w.block_in];
}

// [quads, kPanel] quads of kLanes values, from one output a time; zeros past the weight's end and past w.in.
template <class T, int kLanes>
void lay_out(const Weight& w, int64_t first_out, int64_t begin, int64_t quads, T* panel) {
  float row[kPieceK] = {};
  const int64_t count = std::min(quads * kLanes, w.in - begin);
  for (int o = 0; o < kPanel; ++o) {
    if (first_out + o < w.out)
      read_weight(w, first_out + o, begin, count, row);
    else
      std::fill(row, row + count, 0.f);
    for (int64_t q = 0; q < quads; ++q)
      for (int j = 0; j < kLanes; ++j) panel[(q * kPanel + o) * kLanes + j] = static_cast<T>(row[q * kLanes + j]);
  }
}

void tile_f32(const float* const* x, int64_t rows, const float* panel, int64_t quads, float* sums) {
  for (int64_t r = 0; r < rows; ++r, sums += kRowSums)
    for (int64_t q = 0; q < quads; ++q)
      for (int o = 0; o < kPanel; ++o)
        for (int j = 0; j < 4; ++j) sums[o * 4 + j] += x[r][q * 4 + j] * panel[(q * kPanel + o) * 4 + j];
}

void tile_i16(const int16_t* const* x, int64_t rows, const int16_t* panel, int64_t quads, int32_t* sums) {
  for (int64_t r = 0; r < rows; ++r, sums += kRowSums)
    for (int64_t q = 0; q < quads; ++q)
      for (int o = 0; o < kPanel; ++o)
        for (int j = 0; j < 8; ++j) sums[o * 4 + j / 2] += int32_t{x[r][q * 8 + j]} * panel[(q * kPanel + o) * 8 + j];
}

// A row's sums over its lanes, scales applied.
template <class T>
void finish(const T* sums, const PreparedRows& x, int64_t row, const Weight& w, int64_t first_out, float* values) {
  for (int o = 0; o < kPanel; ++o) {
    const T* s = sums + o * 4;
    float v = static_cast<float>((s[0] + s[2]) + (s[1] + s[3]));
    if (x.scale) v = v * w.scale[std::min(first_out + o, w.out - 1) * w.scale_stride] * x.scale[row];
    values[o] = v;
  }
}

template <class T, int kLanes, class Tile>
void multiply_as(Tile tile, const PanelBlock& b, float* values, const PanelScratch& scratch) {
  using Sum = std::conditional_t<std::is_same_v<T, float>, float, int32_t>;
  T* panel = reinterpret_cast<T*>(scratch.panel);
  Sum* sums = reinterpret_cast<Sum*>(scratch.sums);
  std::fill(sums, sums + b.rows * kRowSums, Sum{0});
  const T* at[kMaxBlockRows];
  for (int64_t k = 0; k < b.w.in; k += kPieceK) {
    const int64_t quads = (std::min(kPieceK, b.w.in - k) + kLanes - 1) / kLanes;
    lay_out<T, kLanes>(b.w, b.first_out, k, quads, panel);
    for (int64_t i = 0; i < b.rows; ++i) at[i] = reinterpret_cast<const T*>(b.x.at(b.row(i))) + k;
    tile(at, b.rows, panel, quads, sums);
  }
  for (int64_t i = 0; i < b.rows; ++i)
    finish(sums + i * kRowSums, b.x, b.row(i), b.w, b.first_out, values + i * kPanel);
}

void multiply(const PanelBlock& b, float* values, const PanelScratch& s) {
  multiply_by_tiles({tile_f32, tile_i16}, b, values, s);
}

Operand operand(DType, const Weight& w) {
  if (w.is_w8a8()) return w.dtype == DType::kI8 ? Operand::kI8 : Operand::kE4M3;
  return Operand::kF32;
}

int64_t row_bytes(Operand o, int64_t width) { return (width + 15) / 16 * 16 * (o == Operand::kI8 ? 2 : 4); }

}  // namespace

void multiply_by_tiles(const Tiles& tiles, const PanelBlock& b, float* values, const PanelScratch& s) {
  if (b.x.operand == Operand::kI8)
    multiply_as<int16_t, 8>(tiles.i16, b, values, s);
  else
    multiply_as<float, 4>(tiles.f32, b, values, s);
}

const PanelKernels& panel_kernels() {
  static constexpr PanelKernels kernels{"portable", operand, row_bytes, prepare,     multiply,
                                        store,      swiglu,  put,       add_weighted};
  return kernels;
}

}  // namespace lathe::portable
