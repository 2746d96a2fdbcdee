#pragma once

#include <functional>
#include <string>
#include <vector>

#include "feedback/number_row.h"
#include "ops/workload.h"

// Every variant of every operator against its oracle, over the operator's cases; and what holds for all of them:
//
//   oracle      each output against `reference`, by the case's tolerance (feedback/judge.h)
//   repeatable  the same call twice, over other poison and other scratch contents: equal bits
//   threads     1 thread and several: equal bits
//   written     every element of a fresh output is written
//   stray       nothing outside the declared outputs changes: inputs, guard bands, gaps between rows
//   alone       a part of the rows gives the bits that it has in company (operators whose rows stand alone), or
//               sequences one after another give the bits that they give together, and leave the same memory
//   sim         on a sim device: the bits of the cpu
//   plants      wrong results made on purpose are rejected (feedback/plants.h); else the case can't judge

namespace lathe {

struct VerifyOptions {
  std::string ops = "*";  // glob over operator names
  std::string device = "cpu";
  int threads = 2;                   // what 1 thread is compared with; at least 2
  int seeds = 3;                     // of small cases; real sizes get one
  bool long_cases = false;           // also the cases of real size
  const Choices* choices = nullptr;  // an operator that has a choice is judged by that variant alone
};

struct Failure {
  std::string op, variant, case_name;
  uint64_t seed;
  std::string relation;  // a word of the list above
  std::string what;
};

struct VerifyReport {
  std::vector<NumberRow> rows;  // one a (operator, variant, case): its worst seed
  std::vector<Failure> failures;
  int64_t checks = 0, plants = 0;
};

// Told before each case: which, and how many of all are done.
using VerifyProgress = std::function<void(const std::string& op, const std::string& case_name, int done, int all)>;

Result<VerifyReport> verify(std::span<const AnyOp> ops, const VerifyOptions& options, const VerifyProgress& progress);

}  // namespace lathe
