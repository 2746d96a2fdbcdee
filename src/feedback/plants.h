#pragma once

#include <string>
#include <vector>

#include "feedback/judge.h"

// A judge must be able to say no. Plants are wrong results made from a right one: zeros, a constant, a shuffle, the
// result of another seed, lower precision, one bad block, one NaN, a truncated tail, the input itself.

namespace lathe {

struct PlantReport {
  int planted = 0;                    // plants that do change the output
  std::vector<std::string> accepted;  // those that the judge took for right: "zeros in 'y'"
};

// `expected`: the right outputs; `other`: those of another seed; `inputs`: the case's inputs. All in host memory.
PlantReport try_plants(const std::vector<FieldView>& expected, const std::vector<FieldView>& other,
                       const std::vector<FieldView>& inputs, double tolerance, double open_ties);

}  // namespace lathe
