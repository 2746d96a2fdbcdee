#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// What an arm of `lathe compare` is: a build, a variant, settings; written as words with commas between, such as
// "avx2", "build/other", "portable,threads=1".
struct CompareArm {
  std::string text;                             // as it was written
  std::string binary;                           // path of the build's binary
  std::string build_id;                         // what that binary says of itself
  std::string variant;                          // of the operator under comparison; "": default
  std::map<std::string, std::string> settings;  // key=value
};

// `own` is the running binary, taken where no build is named. A word is a build if it is a path that exists, a setting
// if it has '=', else a variant.
Result<CompareArm> compare_arm(const std::string& text, const std::string& own);

// What differs between the arms, such as "variant avx2 -> portable"; empty: nothing.
std::vector<std::string> factors(const CompareArm& a, const CompareArm& b);

}  // namespace lathe
