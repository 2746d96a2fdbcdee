#pragma once

#include <string>

#include "model/glm5_next/tensor_list.h"
#include "model/new_model_folder.h"

// Turns a checkpoint into its W8A8 form (docs/formats/w8a8.md): the wide matrices of the tensor list become int8 or
// e4m3 with one scale an output row, everything else is copied byte for byte.
namespace lathe::glm5_next {

struct QuantizeOptions {
  WeightFormat format = WeightFormat::kRowInt8;  // or kRowFp8
  bool lm_head = false;                          // also the head: see the page above before you do
  WriteProgress progress;
};

struct QuantizeReport {
  int tensors = 0;  // that got another form
  int64_t bytes_before = 0, bytes_after = 0;
  double error_ratio = 0;  // RMS(stored·scale - w)/RMS(w) over all of them
};

// Released FP8 checkpoints (blocks of scales) are taken, too; one that is W8A8 already is refused, and so is `out`
// inside `in`. A few megabytes a thread are held. `out` has no config.json unless everything went well.
Result<QuantizeReport> quantize(const std::string& in, const std::string& out, const QuantizeOptions& options,
                                ThreadPool& pool);

}  // namespace lathe::glm5_next
