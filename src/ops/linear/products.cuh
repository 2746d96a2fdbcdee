#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "ops/cuda_kernel.cuh"

// Matrix products on CUDA, for linear, mlp, moe and lm_head. Three kernels, one of which every product takes:
//
//   stream   few rows: a block reads 16 rows of a weight once, its warps sharing the inner dimension, against up to 64
//            rows of x, on tensor cores with the weight on the side of 16. Bound by the weight's bytes.
//   tile     many rows: a warp has its own outputs and goes through the whole inner dimension.
//   exact    fp32 products and sums, for f32 operands and for sizes that the others don't take.
//
// Tensor cores take operands whose inner dimension is permuted alike: a lane loads 16 bytes of a row at once and hands
// them to consecutive steps. A row's sums come in an order that the inner dimension alone decides; stream and tile have
// different ones.
namespace lathe::cuda {

// What a block multiplies: one matrix's rows from out0 on, and x's rows that a list names.
struct Tile {
  Weight w;
  const float* bias = nullptr;  // or none
  char* y = nullptr;            // of the matrix's first output
  int64_t out0 = 0;
  const int32_t* list = nullptr;  // of the tile's rows; none: they are first_row, first_row + 1, ...
  int64_t first_row = 0;
  int rows = 0;
};

// Activations and results, alike for all tiles of a launch.
struct Sides {
  Rows x;
  int list_divisor = 1;        // an entry of a list over this is a row of x
  bool y_row_is_entry = false; // a list's entries name rows of y, or their places do
  int64_t y_stride = 0;
  DType y_dtype = DType::kF32;
  bool round_to_bf16 = false;  // before an f32 y

  __device__ int64_t x_row(const Tile& t, int n) const { return t.list ? t.list[n] / list_divisor : t.first_row + n; }
  __device__ int64_t y_row(const Tile& t, int n) const {
    return t.list && y_row_is_entry ? t.list[n] : t.first_row + n;
  }
  __device__ void put(const Tile& t, int n, int64_t out, float value) const {
    if (t.bias) value += t.bias[out];
    if (round_to_bf16) value = round_bf16(value);
    store_value(t.y, y_dtype, y_row(t, n) * y_stride + out, value);
  }
};

// Products that share rows of x: those of linear, mlp and lm_head. Grid: (tiles of outputs, tiles of rows).
struct Lines {
  static constexpr int kMost = 8;
  Weight w[kMost];
  const float* bias[kMost];
  char* y[kMost];
  int first_tile[kMost + 1];
  int count = 0;
  const int32_t* list = nullptr;
  int64_t rows = 0;

  void add(const Weight& weight, const float* its_bias, void* its_y) {
    w[count] = weight, bias[count] = its_bias, y[count] = static_cast<char*>(its_y);
    ++count;
  }
  // How many tiles of `outs` outputs; fixes where each matrix's begin.
  int cut(int outs) {
    first_tile[0] = 0;
    for (int i = 0; i < count; ++i) first_tile[i + 1] = first_tile[i] + static_cast<int>(ceil_div(w[i].out, outs));
    return first_tile[count];
  }
  __device__ bool tile(int outs, int rows_of_tile, Tile& t) const {
    int i = 0;
    while (i + 1 < count && static_cast<int>(blockIdx.x) >= first_tile[i + 1]) ++i;
    t.w = w[i], t.bias = bias[i], t.y = y[i];
    t.out0 = int64_t{static_cast<int>(blockIdx.x) - first_tile[i]} * outs;
    t.first_row = int64_t{blockIdx.y} * rows_of_tile;
    t.rows = static_cast<int>(min(rows - t.first_row, int64_t{rows_of_tile}));
    t.list = list ? list + t.first_row : nullptr;
    return true;
  }
};

// ---- operands in registers

enum class Form {
  kBf16,    // bf16 by bf16
  kInt8,    // int8 by int8, sums in int32
  kFp8,     // e4m3 by e4m3
  kBlocks,  // bf16 by e4m3 with blocks of scales
};

// How many values of the inner dimension one step takes: four lanes of a row, 16 bytes of weight each.
template <Form kForm>
constexpr int kStep = kForm == Form::kBf16 ? 32 : 64;

template <Form kForm>
using Sum = std::conditional_t<kForm == Form::kInt8, int, float>;

__device__ inline uint4 load16(const void* p) {
  uint4 v;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ inline uint4 load16_once(const void* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}

__device__ inline void multiply(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                                bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                                f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void multiply(int* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                                int8_t) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four e4m3 as two pairs of f16, or of bf16: exact.
__device__ inline void widen(uint32_t four, uint32_t* pairs, f16) {
  const __half2_raw low = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(four), __NV_E4M3),
                    high = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(four >> 16), __NV_E4M3);
  pairs[0] = low.x | uint32_t{low.y} << 16;
  pairs[1] = high.x | uint32_t{high.y} << 16;
}
__device__ inline void widen(uint32_t four, uint32_t* pairs, bf16) {
  for (int i = 0; i < 2; ++i) {
    const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(four >> 16 * i), __NV_E4M3);
    const float2 f = __half22float2(__half2(raw));
    pairs[i] = __float_as_uint(f.x) >> 16 | (__float_as_uint(f.y) & 0xffff0000u);
  }
}

// The pairs that a lane holds of one row and step: 4 or 8 registers, consecutive steps of the tensor core in each two.
template <Form kForm>
struct Piece {
  static constexpr int kPairs = kForm == Form::kBf16 || kForm == Form::kInt8 ? 4 : 8;
  uint32_t r[kPairs];

  __device__ void raw(const uint4& v) { r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w; }
  __device__ void weight(const void* p) {
    const uint4 v = load16_once(p);
    if constexpr (kPairs == 4) {
      raw(v);
    } else {
      using To = std::conditional_t<kForm == Form::kFp8, f16, bf16>;
      widen(v.x, r, To{}), widen(v.y, r + 2, To{}), widen(v.z, r + 4, To{}), widen(v.w, r + 6, To{});
    }
  }
  __device__ void activation(const void* p) {
    const uint4 v = load16(p);
    if constexpr (kForm == Form::kFp8) {
      widen(v.x, r, f16{}), widen(v.y, r + 2, f16{}), widen(v.z, r + 4, f16{}), widen(v.w, r + 6, f16{});
    } else {
      raw(v);
      if constexpr (kForm == Form::kBlocks) {
        const uint4 more = load16(static_cast<const char*>(p) + 16);
        r[4] = more.x, r[5] = more.y, r[6] = more.z, r[7] = more.w;
      }
    }
  }
};

template <Form kForm>
__device__ inline void multiply(Sum<kForm>* c, const Piece<kForm>& low, const Piece<kForm>& high,
                                const Piece<kForm>& x) {
  using Element = std::conditional_t<kForm == Form::kInt8, int8_t, std::conditional_t<kForm == Form::kFp8, f16, bf16>>;
#pragma unroll
  for (int i = 0; i < Piece<kForm>::kPairs; i += 2)
    multiply(c, low.r[i], high.r[i], low.r[i + 1], high.r[i + 1], x.r[i], x.r[i + 1], Element{});
}

// Sums of kOutTiles·16 outputs by kRowTiles·8 rows over steps first, first + stride, ... of the inner dimension.
template <Form kForm, int kOutTiles, int kRowTiles>
struct Sums {
  Sum<kForm> c[kOutTiles][kRowTiles][4] = {};

  __device__ void add(const Tile& t, const Sides& sides, int64_t out0, int first, int stride) {
    const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    constexpr int kWeightBytes = kForm == Form::kBf16 ? 2 : 1, kRowBytes = kForm == Form::kInt8 || kForm == Form::kFp8 ? 1 : 2;
    constexpr int kLane = kStep<kForm> / 4;  // values
    const char *w[kOutTiles][2], *x[kRowTiles];
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t out = min(out0 + m * 16 + half * 8 + group, t.w.out - 1);
        w[m][half] = static_cast<const char*>(t.w.data) + (out * t.w.stride + quarter * kLane) * kWeightBytes;
      }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int64_t row = sides.x_row(t, min(n * 8 + group, t.rows - 1));
      x[n] = static_cast<const char*>(sides.x.data) + (row * sides.x.stride + quarter * kLane) * kRowBytes;
    }
    const int steps = static_cast<int>(t.w.in / kStep<kForm>);
#pragma unroll(kOutTiles == 1 ? 4 : 1)
    for (int k = first; k < steps; k += stride) {
      const int64_t at = int64_t{k} * kStep<kForm>;
      Piece<kForm> low[kOutTiles], high[kOutTiles];
#pragma unroll
      for (int m = 0; m < kOutTiles; ++m)
        low[m].weight(w[m][0] + at * kWeightBytes), high[m].weight(w[m][1] + at * kWeightBytes);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        Piece<kForm> rows;
        rows.activation(x[n] + at * kRowBytes);
#pragma unroll
        for (int m = 0; m < kOutTiles; ++m) {
          if constexpr (kForm == Form::kBlocks) {
            float part[4] = {};
            multiply<kForm>(part, low[m], high[m], rows);
            const float scale =
                t.w.scale[min(out0 + m * 16, t.w.out - 1) / t.w.block_out * t.w.scale_stride + at / t.w.block_in];
#pragma unroll
            for (int i = 0; i < 4; ++i) c[m][n][i] += part[i] * scale;
          } else {
            multiply<kForm>(c[m][n], low[m], high[m], rows);
          }
        }
      }
    }
  }

  // Output and row of element i of c[m][n], within the tile.
  static __device__ int out_of(int m, int i) { return m * 16 + i / 2 * 8 + threadIdx.x % 32 / 4; }
  static __device__ int row_of(int n, int i) { return n * 8 + threadIdx.x % 4 * 2 + i % 2; }
};

// A sum as the number that it stands for.
template <Form kForm>
__device__ inline float scaled(Sum<kForm> sum, const Tile& t, const Sides& sides, int n, int64_t out) {
  if constexpr (kForm == Form::kInt8 || kForm == Form::kFp8)
    return static_cast<float>(sum) * sides.x.scale[sides.x_row(t, n)] * t.w.scale[out * t.w.scale_stride];
  return static_cast<float>(sum);
}

constexpr int kProductThreads = 256, kProductWarps = kProductThreads / 32;

template <Form kForm, int kRowTiles, class Work>
__global__ void __launch_bounds__(kProductThreads) stream_kernel(const __grid_constant__ Work work,
                                                                 const __grid_constant__ Sides sides) {
  extern __shared__ char space[];  // [warps][16·kRowTiles·8]
  auto* sums = reinterpret_cast<Sum<kForm>*>(space);
  Tile t;
  if (!work.tile(16, kRowTiles * 8, t)) return;
  Sums<kForm, 1, kRowTiles> mine;
  const int warp = threadIdx.x / 32;
  mine.add(t, sides, t.out0, warp, kProductWarps);
  constexpr int kWidth = kRowTiles * 8, kAll = 16 * kWidth;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp * kAll + mine.out_of(0, i) * kWidth + mine.row_of(n, i)] = mine.c[0][n][i];
  __syncthreads();
  for (int at = threadIdx.x; at < kAll; at += kProductThreads) {
    const int n = at / 16, o = at % 16;  // neighbours write neighbouring outputs
    const int64_t out = t.out0 + o;
    if (n >= t.rows || out >= t.w.out) continue;
    Sum<kForm> all = 0;
#pragma unroll
    for (int w = 0; w < kProductWarps; ++w) all += sums[w * kAll + o * kWidth + n];
    sides.put(t, n, out, scaled<kForm>(all, t, sides, n, out));
  }
}

constexpr int kTileOuts = 2 * 16 * kProductWarps, kTileRows = 64;

template <Form kForm, class Work>
__global__ void __launch_bounds__(kProductThreads) tile_kernel(const __grid_constant__ Work work,
                                                               const __grid_constant__ Sides sides) {
  Tile t;
  if (!work.tile(kTileOuts, kTileRows, t)) return;
  const int64_t out0 = t.out0 + threadIdx.x / 32 * 32;
  if (out0 >= t.w.out) return;
  Sums<kForm, 2, kTileRows / 8> mine;
  mine.add(t, sides, out0, 0, 1);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < kTileRows / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t out = out0 + mine.out_of(m, i);
        const int row = mine.row_of(n, i);
        if (row < t.rows && out < t.w.out) sides.put(t, row, out, scaled<kForm>(mine.c[m][n][i], t, sides, row, out));
      }
}

// ---- exact

template <class T>
__device__ inline auto value_of(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else if constexpr (std::is_same_v<T, int8_t>)
    return static_cast<int>(x);
  else
    return to_float(x);
}

constexpr int kExactOuts = 4, kExactRows = 8, kExactThreads = 128;

// The four warps share the inner dimension.
template <class X, class W, class Work>
__global__ void __launch_bounds__(kExactThreads) exact_kernel(const __grid_constant__ Work work,
                                                              const __grid_constant__ Sides sides) {
  using Total = std::conditional_t<std::is_same_v<W, int8_t>, int, float>;
  __shared__ Total sums[kExactThreads / 32][kExactOuts][kExactRows];
  Tile t;
  if (!work.tile(kExactOuts, kExactRows, t)) return;
  const X* x[kExactRows];
  const W* w[kExactOuts];
#pragma unroll
  for (int n = 0; n < kExactRows; ++n)
    x[n] = static_cast<const X*>(sides.x.data) + sides.x_row(t, min(n, t.rows - 1)) * sides.x.stride;
#pragma unroll
  for (int o = 0; o < kExactOuts; ++o)
    w[o] = static_cast<const W*>(t.w.data) + min(t.out0 + o, t.w.out - 1) * t.w.stride;
  const bool blocks = std::is_same_v<W, e4m3> && !t.w.is_w8a8();
  Total sum[kExactOuts][kExactRows] = {};
  for (int64_t k = threadIdx.x; k < t.w.in; k += kExactThreads) {
    Total xs[kExactRows];
#pragma unroll
    for (int n = 0; n < kExactRows; ++n) xs[n] = static_cast<Total>(value_of(x[n][k]));
#pragma unroll
    for (int o = 0; o < kExactOuts; ++o) {
      Total v = static_cast<Total>(value_of(w[o][k]));
      if (blocks)
        v *= t.w.scale[min(t.out0 + o, t.w.out - 1) / t.w.block_out * t.w.scale_stride + k / t.w.block_in];
#pragma unroll
      for (int n = 0; n < kExactRows; ++n) sum[o][n] += v * xs[n];
    }
  }
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int o = 0; o < kExactOuts; ++o)
#pragma unroll
    for (int n = 0; n < kExactRows; ++n) {
      const Total all = warp_sum(sum[o][n]);
      if (threadIdx.x % 32 == 0) sums[warp][o][n] = all;
    }
  __syncthreads();
  if (threadIdx.x >= kExactOuts * kExactRows) return;
  const int n = threadIdx.x / kExactOuts, o = threadIdx.x % kExactOuts;
  const int64_t out = t.out0 + o;
  if (n >= t.rows || out >= t.w.out) return;
  float all = static_cast<float>(sums[0][o][n] + sums[1][o][n] + sums[2][o][n] + sums[3][o][n]);
  if (sides.x.scale) all *= sides.x.scale[sides.x_row(t, n)];
  if (t.w.scale && !blocks) all *= t.w.scale[out * t.w.scale_stride];
  sides.put(t, n, out, all);
}

// ---- host side

// Rows quantised for a W8A8 weight, in scratch; x itself where it comes in that form.
Status quantise_rows(OpContext& ctx, const Rows& x, DType to, Rows* quantised);

// The tensor cores' form for such operands, if they take them: whole steps, 16-byte rows. `sharp`: an fp32 result that
// is judged more sharply than e4m3 sums on tensor cores allow.
inline bool tensor_form(const Rows& x, const Weight& w, bool sharp, Form* form) {
  if (x.dtype == DType::kBF16 && w.dtype == DType::kBF16)
    *form = Form::kBf16;
  else if (x.dtype == DType::kI8 && w.dtype == DType::kI8)
    *form = Form::kInt8;
  else if (x.dtype == DType::kE4M3 && w.is_w8a8() && !sharp)
    *form = Form::kFp8;
  else if (x.dtype == DType::kBF16 && w.dtype == DType::kE4M3 && !w.is_w8a8() && w.block_in % 64 == 0 &&
           w.block_out % 16 == 0)
    *form = Form::kBlocks;
  else
    return false;
  const int step = *form == Form::kBf16 ? 32 : 64;
  auto aligned = [](const void* p, int64_t stride_bytes) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride_bytes % 16 == 0;
  };
  return w.in % step == 0 && aligned(x.data, x.stride * dtype_bytes(x.dtype)) &&
         aligned(w.data, w.stride * dtype_bytes(w.dtype));
}

// Calls body(X{}, W{}) with the types of such operands.
template <class Body>
Status with_types(DType x, DType w, Body body) {
  auto with_w = [&](auto xt) {
    switch (w) {
      case DType::kF32:
        return body(xt, float{});
      case DType::kBF16:
        return body(xt, bf16{});
      case DType::kF16:
        return body(xt, f16{});
      default:
        return body(xt, e4m3{});
    }
  };
  if (w == DType::kI8) return body(int8_t{}, int8_t{});
  switch (x) {
    case DType::kF32:
      return with_w(float{});
    case DType::kBF16:
      return with_w(bf16{});
    case DType::kI8:
      return with_w(int8_t{});
    default:
      return with_w(e4m3{});
  }
}

template <Form kForm, int kRowTiles, class Work>
Status launch_stream(OpContext& ctx, const Work& work, const Sides& sides, dim3 grid) {
  constexpr int kShared = kProductWarps * 16 * kRowTiles * 8 * 4;
  stream_kernel<kForm, kRowTiles><<<grid, kProductThreads, kShared, stream_of(ctx)>>>(work, sides);
  return launched("a product of few rows");
}

// Which kernel, and for stream how many rows a tile has.
enum class Plan { kStream8, kStream16, kStream32, kStream64, kTile };

template <Form kForm, class Work, class Grid>
Status launch_form(OpContext& ctx, Work& work, const Sides& sides, Plan plan, Grid grid) {
  switch (plan) {
    case Plan::kStream8:
      return launch_stream<kForm, 1>(ctx, work, sides, grid(work, 16, 8));
    case Plan::kStream16:
      return launch_stream<kForm, 2>(ctx, work, sides, grid(work, 16, 16));
    case Plan::kStream32:
      return launch_stream<kForm, 4>(ctx, work, sides, grid(work, 16, 32));
    case Plan::kStream64:
      return launch_stream<kForm, 8>(ctx, work, sides, grid(work, 16, 64));
    case Plan::kTile:
      break;
  }
  const dim3 blocks = grid(work, kTileOuts, kTileRows);
  tile_kernel<kForm><<<blocks, kProductThreads, 0, stream_of(ctx)>>>(work, sides);
  return launched("a product of many rows");
}

// All matrices of `work` are of `like`'s dtype and alike as tensor_form sees them. grid(work, outs, rows) cuts the work
// into tiles.
template <class Work, class Grid>
Status launch_products(OpContext& ctx, Work& work, const Sides& sides, const Weight& like, bool on_tensor_cores,
                       Form form, Plan plan, Grid grid) {
  if (on_tensor_cores) switch (form) {
      case Form::kBf16:
        return launch_form<Form::kBf16>(ctx, work, sides, plan, grid);
      case Form::kInt8:
        return launch_form<Form::kInt8>(ctx, work, sides, plan, grid);
      case Form::kFp8:
        return launch_form<Form::kFp8>(ctx, work, sides, plan, grid);
      case Form::kBlocks:
        return launch_form<Form::kBlocks>(ctx, work, sides, plan, grid);
    }
  return with_types(sides.x.dtype, like.dtype, [&](auto x, auto w) {
    const dim3 blocks = grid(work, kExactOuts, kExactRows);
    exact_kernel<decltype(x), decltype(w)><<<blocks, kExactThreads, 0, stream_of(ctx)>>>(work, sides);
    return launched("an exact product");
  });
}

}  // namespace lathe::cuda
