#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "feedback/op_server.h"

// Candidates made on purpose, with which the self-test tries the harness: cheats that must be caught, honest ones that
// must pass, slowdowns that must be found. Each is an operator server's behaviour; a new one is a line in the list, and
// the self-test fails until the harness knows what to do with it.

namespace lathe {

enum class Planted { kCheat, kHonest, kSlowdown };

struct PlantedCandidate {
  const char* name;
  Planted kind;
  const char* what;  // in a sentence
  std::function<std::unique_ptr<OpBehaviour>()> make;
};

const std::vector<PlantedCandidate>& planted_candidates();
const PlantedCandidate* planted_candidate(const std::string& name);

}  // namespace lathe
