#include "base/thread_census.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace lathe {

std::vector<LiveThread> thread_census() {
  std::vector<LiveThread> threads;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    LiveThread t;
    t.id = std::atoll(task.path().filename().c_str());
    std::ifstream comm(task.path() / "comm"), stat(task.path() / "stat");
    std::getline(comm, t.name);
    std::string line;
    std::getline(stat, line);  // "12 (name, which may hold anything) S ..."
    const size_t close = line.rfind(')');
    if (close != std::string::npos && close + 2 < line.size()) t.state = line[close + 2];
    if (!t.name.empty()) threads.push_back(t);  // a thread may end while we look
  }
  std::sort(threads.begin(), threads.end(), [](const LiveThread& a, const LiveThread& b) { return a.id < b.id; });
  return threads;
}

}  // namespace lathe
