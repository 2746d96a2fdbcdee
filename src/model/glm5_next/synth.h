#pragma once

#include <cstdint>
#include <string>

#include "model/checkpoint.h"
#include "model/glm5_next/tensor_list.h"
#include "model/new_model_folder.h"

// Random checkpoints of any size: the shapes of a model that can't be had or is too large to ship, with values that
// keep its arithmetic honest (see InitialValue). A value depends on the seed, its tensor's name and its place alone:
// the same seed gives the same bytes for any number of threads and any size of shards.
namespace lathe::glm5_next {

struct SynthOptions {
  uint64_t seed = 0;
  int64_t shard_bytes = int64_t{5} << 30;
  WriteProgress progress;
};

// Writes `dir` from a config.json, which is copied; its dtype and quantization_config say how tensors are stored. Text
// tower, MTP block and vision tower, as announced there; no tokenizer. A few megabytes a thread are held.
Status synthesise(const std::string& config_file, const std::string& dir, const SynthOptions& options,
                  ThreadPool& pool);

// The same tensors in anonymous memory, which goes with the checkpoint: for measuring a model without writing it.
//   LATHE_ASSIGN(const Config config, Config::parse(text, file));
//   LATHE_ASSIGN(const Checkpoint checkpoint, synthesise_in_memory(config, WeightFormat::kRowInt8, 0, pool));
//   Executor::create(config, checkpoint, ...)
Result<Checkpoint> synthesise_in_memory(const Config& config, WeightFormat format, uint64_t seed, ThreadPool& pool);

}  // namespace lathe::glm5_next
