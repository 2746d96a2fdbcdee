#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"

// The names under which published tools write the same tensor (model.md 12.1). We say
// `model.language_model.layers.0...`.
namespace lathe {

// Our name first.
std::vector<std::string> tensor_spellings(const std::string& name);

// The checkpoint's entry under any spelling, with the name it has there; nullptr: none.
const std::pair<const std::string, Checkpoint::Entry>* find_tensor(const Checkpoint& checkpoint,
                                                                   const std::string& name);

// Our name of a tensor of a checkpoint; one that no spelling explains stays as it is.
std::string canonical_name(std::string_view name);

}  // namespace lathe
