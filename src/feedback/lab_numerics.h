#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/growth.h"
#include "feedback/lab_progress.h"

// Case study: a prompt that is cut into segments ends in another KDA state than the same prompt uncut, and the longer
// it is, the more. The lab measures the relation over context length, exchanges the steps of kda_scan one by one for
// exact ones, and then number format and form of the step that carries the error; on the mended twin it finds no
// defect.
namespace lathe {

struct NumericsLabOptions {
  bool mended = false;  // kda_scan=increment_tf32 instead of kda_scan=product_tf32
  std::vector<int64_t> tokens = {1024, 4096, 16384, 32768};
  int segments = 8;
  int threads = 2;
  uint64_t seed = 1;
};

struct NumericsLabReport {
  // An error at each length, and how it grows.
  struct Series {
    std::string name;
    std::vector<double> errors;
    Growth growth;
  };
  struct Exchange {
    std::string name;
    double error = 0;
  };

  bool mended = false;
  std::string variant;
  std::vector<int64_t> tokens;
  int segments = 0;
  double limit = 0;                // of the contract, with operands in TF32
  Series relation, outputs;        // cut against uncut: the state, and y
  bool relation_holds = false;     // at every length
  int64_t smallest_failing = 0;    // tokens, a multiple of segments·16; 0: none fails
  std::vector<Exchange> steps;     // at the longest: as it is, then each step exact
  std::vector<Exchange> variants;  // at the longest: other variants of kda_scan
  std::vector<Series> chains;      // A alone: form and number format
  bool proved = false;             // an exact A mends it, nothing else does; so do another form and another format
  bool defect = false;
  std::string verdict;  // "no defect", or the cause with its address
  double seconds = 0;
};

Result<NumericsLabReport> run_numerics_lab(const NumericsLabOptions& options, const LabProgress& progress);

std::string to_text(const NumericsLabReport& report);
nlohmann::json to_json(const NumericsLabReport& report);

}  // namespace lathe
