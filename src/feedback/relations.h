#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "feedback/growth.h"
#include "feedback/path_runner.h"

// Every path of a model against the plain one (docs/paths.md): cut and uncut, in pieces and at once, cached and cold,
// speculative and plain, in company and alone, replay and recurrent, one thread and several, in each precision. A
// relation that fails is bisected: the shortest prompt that shows it, the period of the lengths that do, and the first
// operator whose results differ.
namespace lathe {

struct RelationOptions {
  std::string model;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  int tokens = 256;  // of the prompt
  int threads = 2;
  uint64_t seed = 1;
  std::string paths = "*";  // glob over names
};

struct RelationResult {
  std::string path, base, dtype;
  bool bit_equal = false;
  double error = 0;        // RMS(path - base)/RMS(base) of all logits
  double tolerance = 0;    // 0: equal bits
  bool must_fail = false;  // a copy without memory: if it passes, nobody would notice a loss
  bool as_expected = true;
  std::vector<ErrorAtLength> errors;  // over windows of positions
  Growth growth;                      // of these
  // Of a failure that isn't meant to be one.
  int64_t smallest_length = 0;
  std::string lengths;  // which ones fail: "from 17 tokens on", "every 16 tokens, at 17 and so on"
  std::string address;  // first divergent pass, position, layer and operator
};

struct RelationReport {
  std::vector<RelationResult> relations;
  bool blind = false;  // a copy without memory passed
  int failures() const;
};

// The path table.
std::vector<Path> relation_paths(int tokens, int threads);

using RelationProgress = std::function<void(const std::string& path, int done, int all)>;
Result<RelationReport> check_relations(const RelationOptions& options, const RelationProgress& progress);
// One path against its base; `paths` lists where the base is found.
Result<RelationResult> check_relation(PathRunner& runner, const Path& path, const std::vector<Path>& paths,
                                      const std::vector<int32_t>& tokens, double tolerance);

// Which of lengths 1, 2, ... fail, in words; `failing` ascending.
std::string pattern_of(const std::vector<int64_t>& failing, int64_t most);

std::string to_text(const RelationReport& report);
nlohmann::json to_json(const RelationReport& report);

}  // namespace lathe
