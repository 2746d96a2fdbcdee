#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

struct ChildOutput {
  int exit_code = 0;  // 128 + signal where it was killed
  std::string stdout_text;
};

// Runs a program to its end; its stderr is ours. An error only if it couldn't be started.
Result<ChildOutput> run_child(const std::vector<std::string>& command);

// Path of the running binary, for process lives of itself.
std::string own_binary();

}  // namespace lathe
