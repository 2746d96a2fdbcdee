#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

// Error of KDA's state and outputs against context length: every way to run the recurrence against an oracle in
// doubles, one head of 128 x 128, over seeded activated tokens that are made as they are needed.
//
//   gates    forget: log decays down to -5.   retain: half of the channels between -1e-3 and 0, where errors stay
//   longest forms    decode, sequential, chunked, replay (ring in fp32); the scan over segments as increment (fp32),
//            increment_tf32 and product_tf32
//
// Tolerances are the contract's: 1e-5 in fp32, 3e-4 with operands rounded to TF32. The product form in TF32 must miss
// 3e-4 on retaining gates, or this test has lost its teeth. With forgetting gates A is 0 after a few tokens, and
// nothing can fail there.
namespace lathe {

struct KdaNumericsOptions {
  std::vector<int64_t> tokens = {1024, 8192, 65536, 1048576};
  std::vector<int> segments = {2, 4, 8, 16};
  int threads = 2;
  uint64_t seed = 1;
};

struct KdaNumericsRow {
  std::string gates, form;
  int64_t tokens = 0;
  int segments = 1;
  double state_error = 0,
         output_error = 0;  // RMS(err)/RMS(reference); of a scan, the worst of all states between segments
  double map_error = 0;     // of A, worst segment; 0 where there is none
  double tolerance = 0;
  bool must_fail = false;  // the drift itself is what this row shows
  double worst() const;
  bool as_expected() const { return (worst() <= tolerance) != must_fail; }
};

// Told after each length and kind of gates: which, and how many of all are done.
using KdaNumericsProgress = std::function<void(const std::string& what, int done, int all)>;

// Rows in the order of tokens, gates, form, segments. Time: about 2 us a token and form on one core with AVX-512.
Result<std::vector<KdaNumericsRow>> kda_numerics(const KdaNumericsOptions& options,
                                                 const KdaNumericsProgress& progress);

}  // namespace lathe
