#pragma once

#include <string>
#include <vector>

#include "ops/kda_prefill/kda_layer.h"
#include "ops/workload.h"

// What the workloads of all KDA operators share: seeded layers, rows and memory, and the bytes and FLOP of a token.
namespace lathe {

// Forgetting gates lose the past within tokens, so an error in old state can't show; retentive ones (half of the
// channels with a log decay above -1e-3) keep it for thousands.
enum class KdaGates { kForget, kRetain };

struct KdaShape {
  int heads, k, v, width, ring;
  float bound;
  KdaGates gates;
  DType dtype;

  std::string name() const {
    return fmt::format("h{}_k{}v{}_w{}_{}{}_{}", heads, k, v, width, bound < 0 ? "" : "free",
                       gates == KdaGates::kForget ? "forget" : "retain", dtype_name(dtype));
  }
  int64_t channels() const { return int64_t{heads} * (2 * k + v); }
  double tolerance() const { return dtype == DType::kF32 ? 1e-5 : 5e-3; }
  // Of one token: raw q, k, v, f and gate in, y out.
  int64_t row_bytes() const { return int64_t{heads} * (3 * k + 3 * v + 1) * dtype_bytes(dtype); }
  // Of one slot: state and the convolution's history, both ways.
  int64_t memory_bytes() const {
    return int64_t{heads} * 8 * k * v + 2 * (width - 1) * channels() * dtype_bytes(dtype);
  }
  // S·Diag(a), S~·k, + d·kᵀ, S·q.
  int64_t token_flop() const { return int64_t{heads} * 7 * k * v; }
};

inline KdaLayer kda_layer(CaseBuilder& b, const KdaShape& s) {
  const bool forget = s.gates == KdaGates::kForget;
  KdaLayer layer{.conv_weight = b.vector(s.channels() * s.width, 0.5),
                 .a_log = b.vector(s.heads, 0.2),
                 .dt_bias = forget ? b.vector(int64_t{s.heads} * s.k, 1) : b.vector(int64_t{s.heads} * s.k, 5, -8.5),
                 .norm_weight = b.vector(s.v, 0.2, 1)};
  layer.heads = s.heads, layer.k = s.k, layer.v = s.v, layer.width = s.width, layer.bound = s.bound;
  return layer;
}

inline KdaRows kda_rows(CaseBuilder& b, const KdaShape& s, int64_t rows) {
  return {.qkv = b.rows(rows, s.channels(), s.dtype),
          .forget = b.rows(rows, int64_t{s.heads} * s.k, s.dtype),
          .beta = b.rows(rows, s.heads, s.dtype),
          .gate = b.rows(rows, int64_t{s.heads} * s.v, s.dtype)};
}

inline KdaRows part_of(const KdaRows& in, const SequencePart& part) {
  return {part.of(in.qkv), part.of(in.forget), part.of(in.beta), part.of(in.gate)};
}

inline KdaMemory kda_memory(CaseBuilder& b, const KdaShape& s, int64_t slots) {
  return {.state = b.pool(slots, int64_t{s.heads} * s.v * s.k, DType::kF32, 0.3),
          .conv = b.pool(slots, s.ring * s.channels(), s.dtype, 1),
          .ring = s.ring};
}

// Small odd shapes for verify: K != V, sizes off every vector width, every kind of gate.
inline std::vector<KdaShape> small_kda_shapes() {
  using enum KdaGates;
  constexpr DType f32 = DType::kF32, b16 = DType::kBF16;
  return {
      {3, 16, 24, 4, 3, -5, kForget, f32}, {2, 19, 7, 4, 5, -5, kRetain, f32},  {1, 33, 40, 2, 1, 0, kForget, f32},
      {2, 24, 17, 5, 9, 0, kRetain, f32},  {1, 8, 8, 3, 2, -2.5, kRetain, f32}, {2, 128, 128, 4, 3, -5, kRetain, f32},
      {3, 16, 24, 4, 3, -5, kForget, b16}, {2, 19, 7, 4, 5, 0, kRetain, b16},   {2, 128, 128, 4, 3, -5, kForget, b16}};
}

// The shape of bench/configs/1b.json.
inline KdaShape bench_kda_shape(KdaGates gates = KdaGates::kForget, DType dtype = DType::kBF16) {
  return {8, 128, 128, 4, 3, -5, gates, dtype};
}

}  // namespace lathe
