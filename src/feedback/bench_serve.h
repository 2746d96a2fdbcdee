#pragma once

#include <functional>
#include <string>
#include <vector>

#include "feedback/number_row.h"
#include "feedback/serve_load.h"

// A service measured from inside its process: steps against their roofs, the engine's own time, what the prefix cache
// and speculation bring, and latencies under load. No HTTP.

namespace lathe {

struct ServeBenchOptions {
  std::string model;  // folder of a checkpoint
  std::string suite;  // questions for speculation; "": heldout.jsonl.gz of the model folder
  int threads = 1;
  std::vector<std::string> variants;  // "OP=NAME"
  int drafts = 3;
  std::vector<std::string> parts;  // of serve_bench_parts(); empty: all
  int steps = 96;                  // of a batch size
  int trials = 5;                  // of a prefix
  int questions = 12;              // of a task
  LoadShape shape;
  LoadPlan plan{.requests = 200, .per_second = 0};
  double rate = 0;  // of the open loop; 0: 0.7 of what the closed loop got
};

const std::vector<std::string>& serve_bench_parts();  // steps, prefix, speculation, load

// Told before each part: what.
using ServeBenchProgress = std::function<void(const std::string& what)>;

// Rows of op "serve", variant "drafts0" or "drafts<N>":
//   step_rows<R>              a step that decodes R choices; bytes, flop and roof as counted for it
//   step_rows<R>/outside      of it, what no operator spends
//   prefix_4096/cold, /warm   time to the first token; ratio of the two
//   <task>_rows<R>            time of an output token; with drafts: ratio, how many times faster than without
//   closed/..., open/...      ttft_p50, ..., itl_p99, throughput, errors, hits
// A note says which goal is held against a number, and whether it is reached.
Result<std::vector<NumberRow>> serve_bench(const ServeBenchOptions& options, const ServeBenchProgress& progress);

}  // namespace lathe
