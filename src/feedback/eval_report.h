#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// One marked answer.
struct EvalMarked {
  std::string id, task;  // id: the item's, with the ask's number
  bool right = false;
  std::string wanted, got;
  int tokens = 0, verification_steps = 0, accepted = 0;
  int context = 0;
};

struct EvalRun {
  std::string model, build, setting;  // setting: dtype, device, variants, drafts
  double seconds = 0;
  std::vector<EvalMarked> answers;
};

// A proportion with its 95 % interval (Wilson).
struct Proportion {
  int right = 0, all = 0;
  double value() const { return all ? static_cast<double>(right) / all : 0; }
  double low() const, high() const;
};

// A task's answers together; "recall@4096" for a context length.
struct EvalTask {
  std::string name;
  Proportion accuracy;
  double acceptance_length = 0;  // tokens a verification step, the bonus token included; 0: no speculation
};
std::vector<EvalTask> tasks_of(const EvalRun& run);

nlohmann::json eval_json(const EvalRun& run);
Result<EvalRun> read_eval_run(const std::string& path);

// What a setting changed: the same items under two runs. p: exact sign test over items that changed sides.
struct EvalChange {
  std::string task;
  Proportion a, b;
  int lost = 0, won = 0;
  double p = 1;
};
Result<std::vector<EvalChange>> compare_eval_runs(const EvalRun& a, const EvalRun& b);

}  // namespace lathe
