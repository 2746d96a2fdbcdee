#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "testing/scratch_folder.h"

namespace lathe::testing {

// A model folder that can be served: random weights in the shapes of small_config(), 16 MB at most, and a tokenizer
// with one token a byte and a few added ones. Outputs are noise, but all the engine's parts take part in them.
class ServingModel {
 public:
  static constexpr int kEnd = 256, kThink = 257, kThinkEnd = 258, kImage = 262, kVocab = 272;

  explicit ServingModel(uint64_t seed = 1, const std::function<void(nlohmann::json&)>& change = {});
  std::string path() const { return folder_.path("model"); }

 private:
  ScratchFolder folder_;
};

// Fills `folder` with links to a model's files and to a tokenizer, which the small models of the reference set lack.
void link_served(const std::string& folder, const std::string& model, const std::string& tokenizer);

}  // namespace lathe::testing
