#pragma once

#include "testing/random_traffic.h"
#include "testing/served.h"

namespace lathe::testing {

// The property that a server must have: whatever happens to a request under load (company, cuts, hits, preemption,
// eviction, speculation), its answer is what the same request gives alone, on a server that has seen nothing else.
struct NeverLiesOptions {
  ServiceOptions served;  // under load
  TrafficOptions traffic;
  int requests = 1000;
  int at_once = 24;  // requests in flight
};

struct NeverLiesReport {
  int requests = 0, cancelled = 0, compared = 0;
  int differing = 0;            // requests whose ids aren't those of the same request alone
  int unexplained = 0;          // in `fast`: of those, where the first difference is no near tie
  int off = 0;                  // in `fast`: requests with a log probability that is further off than the tolerance
  double path_difference = 0;   // in `fast`: between log probabilities of two paths, the greatest usual one
  int leaks = 0, disorder = 0;  // of pages or slots; events out of order
  uint64_t preempted = 0, hit_tokens = 0, drafts = 0, accepted = 0;  // that such things happened at all
  std::vector<std::string> examples;
};

// Little memory, small steps, close checkpoints: everything that can happen does. `context`: tokens of the longest
// prompts.
NeverLiesOptions under_pressure(const std::string& model, bool strict, int context);

// What came of it, in a line, and the examples.
void print(const NeverLiesReport& report, uint64_t seed);

// Runs the traffic twice: together, and each request alone and cold. In `strict` ids must be equal.
Result<NeverLiesReport> run_never_lies(const NeverLiesOptions& options);

}  // namespace lathe::testing
