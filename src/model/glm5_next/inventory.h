#pragma once

#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/glm5_next/tensor_list.h"

namespace lathe::glm5_next {

// What a checkpoint holds, in the words of the tensor list.
struct Inventory {
  std::vector<TensorInfo>
      tensors;  // as stored: their names, shapes and dtypes there; part and layer by their canonical names
  std::vector<std::string> unknown;  // tensors of the checkpoint that no list has
  std::vector<std::string> missing;  // parameters of the list that the checkpoint lacks, under any spelling
};

// Reads headers only. An MTP block that config.json announces and the checkpoint lacks as a whole isn't missing.
Inventory take_inventory(const Config& config, const Checkpoint& checkpoint);

}  // namespace lathe::glm5_next
