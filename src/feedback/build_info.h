#pragma once

#include <string>

// What this binary is, so that a number measured with it has an address.

namespace lathe {

struct BuildInfo {
  std::string version;
  std::string commit;    // with "+changes" where the tree differed from it; "unknown" outside git
  std::string build_id;  // hash over sources, flags and compiler
  std::string compiler, flags, build_type;
};
const BuildInfo& build_info();

// Instruction sets that this machine and build can use, such as "avx512 avx512_bf16"; "portable" if none.
std::string isa_features();

std::string identity_text();  // a few lines for people
std::string identity_json();  // one object

}  // namespace lathe
