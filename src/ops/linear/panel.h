#pragma once

#include <cstdint>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "base/view.h"

// Matrix products by panels of 16 outputs: what linear, mlp, moe and lm_head have in common.
//
// Idea: both operands have K contiguous, so a register holds a few neighbouring k of one or more outputs, and each
// output has a few running sums (4 or 8, by the instruction set), each over its own k in ascending order, whatever the
// number of rows: a row's bits depend on that row alone. One row and thousands take the same sums; they differ only in
// whether a panel is laid out once (for many rows), or read straight from the weight's rows (for few).

namespace lathe {

// What x and w become before they meet. Prepared rows are padded with zeros to whole steps of every kernel.
enum class Operand : uint8_t {
  kF32,   // fp32 both; weights widened a panel at a time
  kE4M3,  // x quantised by row to e4m3's steps, kept as fp32: for W8A8 fp8 weights
  kBF16,  // bf16 both, fp32 sums of pairs: where a machine's dot instruction is faster than widening
  kI8,    // x quantised by row to int8, sums exact in int32
};
constexpr int kOperands = 4;

// Rows of x as kernels read them; their layout belongs to the instruction set that made them.
struct PreparedRows {
  Operand operand = Operand::kF32;
  char* data = nullptr;
  int64_t rows = 0, width = 0, row_bytes = 0;
  float* scale = nullptr;  // [rows] where x was quantised

  char* at(int64_t row) const { return data + row * row_bytes; }
};

constexpr int kPanel = 16;          // outputs of a panel
constexpr int kMaxBlockRows = 192;  // rows that meet a panel in one call

// One worker's memory.
struct PanelScratch {
  float* values = nullptr;  // [2, kMaxBlockRows, kPanel]: what a panel gives, and the next or another weight's
  char* sums = nullptr;     // running sums of a block, between pieces of K
  char* panel = nullptr;    // a panel's piece of K
  float* row = nullptr;     // [width]: one row in fp32

  float* beside() const { return values + kMaxBlockRows * kPanel; }
};

// Some rows against one panel.
struct PanelBlock {
  const PreparedRows& x;
  const int32_t* index;  // x's rows index[0..rows); nullptr: first, first + 1, ...
  int64_t first, rows;
  const Weight& w;
  int64_t first_out;
  const void* next =
      nullptr;  // where the panel begins that this worker meets next, if it lies as w does: it may be fetched

  int64_t row(int64_t i) const { return index ? index[i] : first + i; }
};

// The steps of a product on one instruction set.
struct PanelKernels {
  const char* name;

  // How x and w meet.
  Operand (*operand)(DType x, const Weight& w);
  int64_t (*row_bytes)(Operand operand, int64_t width);

  // Row `from_row` of x becomes row `to_row`.
  void (*prepare)(const Rows& x, int64_t from_row, const PreparedRows& to, int64_t to_row, float* row_scratch);

  // x[r]·w[o] for o in [first_out, first_out + kPanel), scales applied, into values, [rows, kPanel]. Values past w.out
  // mean nothing.
  void (*multiply)(const PanelBlock& block, float* values, const PanelScratch& s);

  // What becomes of values: `outs` columns of [rows, kPanel]; past kPanel, of a second such block kMaxBlockRows rows
  // further. bias may be nullptr.
  void (*store)(const float* values, int64_t rows, const float* bias, const Rows& y, int64_t first_row,
                int64_t first_out, int outs, bool round_bf16);
  // Of one panel: gate becomes silu(min(gate + bias, limit))·clamp(up + bias, ±limit); limit 0: no clamp.
  void (*swiglu)(float* gate, const float* up, int64_t rows, int outs, const float* gate_bias, const float* up_bias,
                 float limit);
  // Into prepared rows that aren't quantised; columns from `outs` up to the panel's end become zero.
  void (*put)(const float* values, int64_t rows, int outs, bool round_bf16, const PreparedRows& to, int64_t first_row,
              int64_t first_out);
  // sum[index[i]] += weight[i]·(values[i] + bias), index over rows of sum.
  void (*add_weighted)(const float* values, int64_t rows, int outs, const float* bias, const float* weight,
                       const int32_t* index, float* sum, int64_t sum_stride);
};

namespace portable {
const PanelKernels& panel_kernels();
}
namespace avx2 {
const PanelKernels& panel_kernels();
}
namespace avx512 {
const PanelKernels& panel_kernels();
}

}  // namespace lathe
