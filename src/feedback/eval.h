#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/probe.h"
#include "feedback/eval_report.h"

namespace lathe {

struct EvalOptions {
  std::string model;  // folder with a tokenizer and a chat template
  std::string suite;  // file of items; "": heldout.jsonl.gz of the model folder
  std::string dtype, device = "cpu";
  int threads = 1;
  std::vector<std::string> variants;  // "OP=NAME"
  std::vector<std::string> tasks;     // only these; empty: all
  bool quick = false;                 // only items marked quick
  bool hard = false;                  // also items beyond what the model was trained for
  int drafts = 3;                     // of the MTP block, where the model has one; 0: plain decode
  int slots = 32;                     // sequences at once
  int index_top_k = 0;                // attend to so many tokens instead of config.json's; 0: as it says
  int recent = 0;                     // replace the indexer's choice by the last so many tokens; 0: don't
  std::shared_ptr<Recorder> probes;   // null: off
  std::function<void(int done, int all)> progress;
};

// Asks a model the questions of a suite, greedily and batched, and marks the answers.
Result<EvalRun> evaluate(const EvalOptions& options);

}  // namespace lathe
