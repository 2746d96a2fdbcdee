#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/verdict.h"

// May this harness judge today? Every planted candidate (feedback/cheats.h) goes through the same measurement as a real
// one. Passed: each cheat is judged incorrect or refused, no honest one is; each slowdown is found worse and no less
// than half of its size; what changes nothing is neither better nor worse.
//
// A machine that does other things meanwhile may leave a slowdown undecided, or make an honest candidate look busy
// while nothing is asked of it. Such a case is tried again; if it stays so, the answer is "can't tell", not "failed":
// results that are wrong or taken for right are failures always.

namespace lathe {

struct SelftestOptions {
  std::string only = "*";            // glob over names
  std::vector<std::string> command;  // of a candidate: BINARY op-server; --planted NAME is added
};

struct SelftestResult {
  std::string name, kind, what;
  Verdict verdict = Verdict::kInconclusive;
  enum class State { kPassed, kCantTell, kFailed } state = State::kFailed;
  bool passed() const { return state == State::kPassed; }
  std::string why;
};

using SelftestProgress = std::function<void(int done, int all, const std::string& name)>;
Result<std::vector<SelftestResult>> selftest(const SelftestOptions& options, const SelftestProgress& progress);

}  // namespace lathe
