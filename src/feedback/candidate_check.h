#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "feedback/number_row.h"
#include "feedback/op_trial.h"

// Another build's operators, judged from outside: inputs, oracle, tolerances and the clock are this build's, the
// candidate runs in a process of its own (feedback/op_trial.h).
namespace lathe {

struct CandidateOptions {
  std::string build;                   // a lathe binary, or a folder that holds one
  std::string ops = "*", cases = "*";  // globs over names
  const Choices* choices = nullptr;    // an operator that has a choice is judged by that variant alone
  int threads = 1;
  bool long_cases = false;  // verify: also the cases of real size
  int lives = 5;            // bench: fresh processes a case; one number each
  uint64_t secret = 0;      // draws what is checked and how inputs change; unpredictable to the candidate
};

struct CandidateTrouble {
  std::string op, variant, case_name;
  Verdict verdict;
  std::string why;
};

struct CandidateReport {
  std::string build_id;
  std::vector<NumberRow> rows;  // a variant that can't take a case has none
  std::vector<CandidateTrouble> troubles;
  std::vector<std::string> left_out;  // variants that the candidate doesn't have
};

using CandidateProgress = std::function<void(const std::string& what, int done, int all)>;
// Every variant that this build knows by name, and the candidate's default: right or wrong, no times.
Result<CandidateReport> verify_candidate(std::span<const AnyOp> ops, const CandidateOptions& options,
                                         const CandidateProgress& progress);
// The candidate's default variant, or the chosen one, on cases of real size: times of what is right.
Result<CandidateReport> bench_candidate(std::span<const AnyOp> ops, const CandidateOptions& options,
                                        const CandidateProgress& progress);

}  // namespace lathe
