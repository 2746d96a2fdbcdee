#pragma once

#include "ops/linear/shared_rows.cuh"

namespace lathe::cuda {

// Clamped SwiGLU of rows [gate | up], fp32: to rows as `down` meets them, f32 or bf16, or quantised.
Status make_middle(OpContext& ctx, const Rows& gate_up, float limit, const Rows& middle);

// Rows of that kind in scratch, for x's dtype and `down`.
Rows middle_rows(OpContext& ctx, int64_t rows, int64_t inner, DType x, const Weight& down);

}  // namespace lathe::cuda
