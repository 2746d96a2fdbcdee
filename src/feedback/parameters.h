#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "lathe/server.h"
#include "ops/workload.h"

// The launch parameters: what may be searched, and what must be proved before a change of one is believed.
namespace lathe {

struct Parameter {
  std::string name, type, range, unit, fallback, meaning;
  std::string needs;     // what it depends on; "": nothing
  std::string numerics;  // "same bits", "other order" of sums, or "other precision"
  bool restart = true;   // takes effect at the start alone
};

// Keys of the engine and its admission, with what the configuration says of them, and the variant of each operator.
std::vector<Parameter> launch_parameters(std::span<const AnyOp> ops);

nlohmann::json to_json(const Parameter& parameter);

}  // namespace lathe
