#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/trace_summary.h"

// What makes two recorded runs differ: the time of a unit of work (a prompt's prefill, a decode step, a profiler step)
// on the thread that drives it, split into contributions with addresses. Each moment belongs to one contribution, so
// they add up; moments of which no probe says anything are the row "unexplained". Counts come before clocks: what is
// called more often, by another variant or with another shape is told first, and needs no noise floor.
namespace lathe {

// phase > layer kind > operator > variant > shape > what (compute, pool wait, wait for a lock or a device, ...).
struct Contribution {
  std::vector<std::string> path;
  double a_ns = 0, b_ns = 0;        // a unit
  double a_calls = 0, b_calls = 0;  // a unit
  double noise_ns = 0;              // below that a difference says nothing
  double delta_ns() const { return b_ns - a_ns; }
  bool beyond_noise() const { return delta_ns() > noise_ns || -delta_ns() > noise_ns; }
};

struct PhaseExplanation {
  std::string phase;  // "prefill", "decode", "ProfilerStep", ...
  int64_t a_units = 0, b_units = 0;
  double a_ns = 0, b_ns = 0, noise_ns = 0;  // a unit
  double a_sum_ns = 0, b_sum_ns = 0;        // of all units, also those that the means leave out
  double a_roof_ns = 0, b_roof_ns = 0;      // where the recording says one; 0: it doesn't
  std::vector<Contribution> rows;           // largest change first; they add up to the difference of a_ns and b_ns
  double unexplained_ns = 0;                // change that no address explains
  bool reconciled = true;                   // it is within the noise or a quarter of the change
  double realised = 0;                      // change of the whole over the largest change of a part; 0: no part changed
};

struct Explanation {
  std::vector<std::string> settings;  // what of the runs' settings, builds and injections differs, in words
  std::vector<PhaseExplanation> phases;
  std::vector<std::string> counts;    // differences that need no clock
  std::vector<std::string> findings;  // largest first, with level of proof; empty: can't tell
  std::vector<std::string> chains;    // who held what while whom waited, in both runs
  std::vector<std::string> device;    // busy time and kernels, where there is a device
  std::string verdict;                // one sentence
  bool differs = false;
};

struct ExplainOptions {
  std::string within;        // units are the spans of this name; "": steps of Lathe, of a profiler, or the whole trace
  double life_floor = 0.25;  // one recorded life an arm: clocks of less than that share of a part say nothing. Two
                             // windows of the same program were seen to differ by 13.5 %
};

// Several traces an arm are several process lives of it: their spread replaces the life floor.
Result<Explanation> explain(const std::vector<Trace>& a, const std::vector<Trace>& b, const ExplainOptions& options);

std::string to_text(const Explanation& e, int rows);
nlohmann::json to_json(const Explanation& e);

}  // namespace lathe
