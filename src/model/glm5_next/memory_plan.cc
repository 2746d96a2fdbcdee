#include "model/glm5_next/memory_plan.h"

#include <algorithm>

#include "cache/sequence_memory.h"
#include "model/glm5_next/scratch_bound.h"
#include "model/glm5_next/text_tower.h"

namespace lathe::glm5_next {

namespace {

constexpr int64_t kPageBytes = 4096;                  // of the machine: each small tensor has an allocation of its own
constexpr int64_t kHugePageBytes = int64_t{2} << 20;  // scratch is touched by these

bool runs(const TensorInfo& t, const MemoryRequest& r) {
  return (t.part != TensorPart::kMtp || r.mtp) && (t.part != TensorPart::kVision || r.vision);
}

// Tensors that the loader converts to f32: all that isn't a matrix.
bool is_vector(const TensorInfo& t) {
  return !t.scale && (t.shape.size() < 2 || t.name.ends_with("_ape") || t.name.find("conv1d") != std::string::npos);
}

MemoryPlan plan_rows(const Config& config, const std::vector<TensorInfo>& tensors, const MemoryRequest& r,
                     int64_t rows) {
  MemoryPlan plan{.rows = rows};
  bool w8a8 = false, mtp = false;
  for (const TensorInfo& t : tensors) {
    w8a8 = w8a8 || t.name.ends_with(".weight_scale");
    mtp = mtp || t.part == TensorPart::kMtp;
    if (!runs(t, r)) continue;
    plan.weights += t.bytes();
    if (is_vector(t)) plan.vectors += r.cut.size * ((t.count() * 4 + kPageBytes - 1) / kPageBytes * kPageBytes);
  }
  const int64_t logit_rows = r.logit_rows ? r.logit_rows : r.batch;
  for (int rank = 0; rank < r.cut.size; ++rank) {
    Partition mine = r.cut;
    mine.rank = rank;
    TextWeights shape_only;
    if (mtp) shape_only.mtp.emplace();
    const TextTower tower(config.text, std::move(shape_only), mine, r.dtype);
    const MemoryShape shape = tower.memory_shape(r.replay_length, r.max_draft);
    plan.slot_bytes = SequenceMemory::slot_bytes(shape), plan.page_bytes = SequenceMemory::page_bytes(shape);
    plan.page_tokens = shape.page_tokens;
    plan.page_count = r.batch * ((r.context + shape.page_tokens - 1) / shape.page_tokens);
    plan.slots += r.batch * plan.slot_bytes;
    plan.pages += plan.page_count * plan.page_bytes;
    // Under a cut of the context a rank has its share of the rows, but gathers keys and latents of all.
    plan.activations += tower.activation_bytes(rows, logit_rows);
    const int64_t scratch = scratch_bound(config.text, {.rows = rows,
                                                        .logit_rows = logit_rows,
                                                        .context = r.context,
                                                        .dtype = r.dtype,
                                                        .w8a8 = w8a8,
                                                        .ranks = r.cut.is(Parallel::kContext) ? r.cut.size : 1,
                                                        .threads = r.cut.size > 1 ? 1 : r.threads});
    plan.scratch += (scratch + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }
  return plan;
}

}  // namespace

PassLimits pass_limits(const Config& config, const std::vector<TensorInfo>& tensors, DType dtype,
                       const Partition& cut) {
  constexpr int64_t kLeast = 64, kMost = 2048, kMostLogits = 256;
  constexpr int64_t kAlways = int64_t{4} << 20;  // however small the model is: nobody misses so little
  const MemoryRequest alone{.context = std::min<int64_t>(4096, config.text.max_positions), .dtype = dtype, .cut = cut};
  const int64_t weights = plan_rows(config, tensors, alone, kLeast).weights;
  PassLimits limits{.rows = kMost};
  for (; limits.rows > kLeast; limits.rows /= 2) {
    const MemoryPlan plan = plan_rows(config, tensors, alone, limits.rows);
    if (plan.activations + plan.scratch <= std::max(weights / 20, kAlways)) break;
  }
  constexpr int64_t kCopies = 4;  // on the device, as read back, as floats, on the way to a file
  limits.logit_rows =
      std::clamp<int64_t>(weights / 100 / (int64_t{config.text.vocab} * 4 * kCopies * cut.size), 1, kMostLogits);
  return limits;
}

MemoryPlan plan_memory(const Config& config, const std::vector<TensorInfo>& tensors, const MemoryRequest& request) {
  const int64_t tokens = std::max<int64_t>(request.batch * request.context, 1);
  return plan_rows(
      config, tensors, request,
      request.rows ? request.rows : std::min(pass_limits(config, tensors, request.dtype, request.cut).rows, tokens));
}

}  // namespace lathe::glm5_next
