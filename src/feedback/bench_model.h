#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/probe.h"
#include "feedback/number_row.h"
#include "model/glm5_next/tensor_list.h"

// A whole model of random weights, measured from configuration alone: decode at batch 1, a prefill, and the cost of a
// token against context length. Roofs use ceilings measured in the same process, before and after.

namespace lathe {

struct ModelBenchOptions {
  std::string config;  // file
  glm5_next::WeightFormat format = glm5_next::WeightFormat::kPlain;
  int threads = 1;
  int prefill_tokens = 2048;
  std::vector<int> contexts = {1024, 4096, 16384, 65536, 131072};
  int decode_steps = 24;  // a context
  int prefills = 3;
  std::vector<std::string> variants;  // "OP=NAME"
  std::shared_ptr<Recorder> probes;   // null: off
};

// Told before each part: what.
using ModelBenchProgress = std::function<void(const std::string& what)>;

// One process life. Rows, with op "model" and the format as variant:
//   decode_ctx<C>            a token at context C; bytes: weights, states, latents and pooled keys it must read
//   prefill_<T>              a prompt of T tokens; flop: all its matrix products
//   prefill_<T>_products     the part of it spent in linear, mlp, moe and lm_head
//   ctx<C>/kda_layer, ctx<C>/sparse_layer, ctx<C>/<operator>     per token and layer
// and with the operator's own name and variant: decode_ctx<first C>/share and prefill_<T>/share, the sum over layers.
// The context is filled with random rows, not computed: what a token costs depends on how many there are.
Result<std::vector<NumberRow>> model_bench_life(const ModelBenchOptions& options, const ModelBenchProgress& progress);

// Rows of several lives to one each: medians, spread, and fractions of the medians.
std::vector<NumberRow> merge_lives(const std::vector<std::vector<NumberRow>>& lives);

}  // namespace lathe
