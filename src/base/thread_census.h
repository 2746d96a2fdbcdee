#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lathe {

struct LiveThread {
  int64_t id = 0;
  std::string name;
  char state = '?';  // as the system says: R running, S sleeping, D waiting for a device
};

// The threads of this process, as the system counts them: who says that all is done must not have hidden one.
std::vector<LiveThread> thread_census();

}  // namespace lathe
