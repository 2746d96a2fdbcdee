#pragma once

#include <cstdint>
#include <vector>

#include "model/glm5_next/tensor_list.h"
#include "model/partition.h"

// How much memory a model takes on the CPU for so many sequences of such a length: before anything is loaded.
namespace lathe::glm5_next {

struct MemoryRequest {
  int64_t context = 4096;      // tokens of a sequence, prompt and output
  int batch = 1;               // sequences at once
  int64_t rows = 0;            // of the widest pass; 0: as pass_limits says, if there are so many tokens
  int64_t logit_rows = 0;      // logits at once; 0: one a sequence
  DType dtype = DType::kBF16;  // of activations and caches
  int replay_length = 0, max_draft = 0;
  Partition cut;                     // ranks of one process share the mapped weights, nothing else
  int threads = 1;                   // of the whole process
  bool mtp = false, vision = false;  // whether these run: their weights are touched only then
};

// Bytes, over all ranks. What is resident (RssAnon + RssShmem + RssFile) stays below total(), plus what the process
// itself takes (code, headers of the checkpoint, tokenizer).
struct MemoryPlan {
  int64_t weights = 0;      // of the mapped files, as far as this request reads them
  int64_t vectors = 0;      // small tensors as f32, and what the cut asks for
  int64_t slots = 0;        // state of all sequences that doesn't grow
  int64_t pages = 0;        // caches that do
  int64_t activations = 0;  // of a pass
  int64_t scratch = 0;      // inside an operator, at most

  int64_t slot_bytes = 0, page_bytes = 0, page_tokens = 0, page_count = 0;  // of one rank
  int64_t rows = 0;                                                         // of the widest pass, as planned

  int64_t planned() const { return weights + vectors + slots + pages; }
  int64_t total() const { return planned() + activations + scratch; }
};

// `tensors`: of list_tensors or of an inventory.
MemoryPlan plan_memory(const Config& config, const std::vector<TensorInfo>& tensors, const MemoryRequest& request);

// How much one pass may do at once, so that activations, scratch and logits stay below a tenth of the text weights.
// Follows from the model, the dtype and the cut alone, never from threads or company: a prompt is always cut into the
// same passes.
struct PassLimits {
  int64_t rows = 0;        // of a prefill pass: a power of two from 64 to 2048
  int64_t logit_rows = 0;  // logits at once, where all of a pass are wanted
};
PassLimits pass_limits(const Config& config, const std::vector<TensorInfo>& tensors, DType dtype, const Partition& cut);

}  // namespace lathe::glm5_next
