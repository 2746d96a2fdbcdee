#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/service.h"
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

// A service of that model that a test can reason about: one thread, f32, four choices at once, a small cache.
inline ServiceOptions small_service(const ServingModel& model, int drafts) {
  ServiceOptions o;
  o.engine.model = model.path(), o.engine.threads = 1, o.engine.dtype = "f32";
  o.max_running = 4, o.cache_tokens = 2048, o.step_tokens = 64, o.drafts = drafts, o.checkpoints = 6;
  return o;
}

// A prompt of so many tokens below `ids`, and exactly so many tokens of output.
inline Request request_of(const std::string& id, int prompt, int tokens, int ids) {
  Request r;
  r.id = id, r.max_tokens = tokens, r.ignore_eos = true;
  for (int i = 0; i < prompt; ++i) r.prompt.push_back((i * 37 + prompt) % ids);
  return r;
}

// Fills `folder` with links to a model's files and to a tokenizer, which the small models of the reference set lack.
void link_served(const std::string& folder, const std::string& model, const std::string& tokenizer);

}  // namespace lathe::testing
