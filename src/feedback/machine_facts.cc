#include "feedback/machine_facts.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "feedback/build_info.h"

namespace lathe {

namespace {

// "key : value" of a /proc file; "" if it isn't there.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
      return at == std::string::npos ? "" : line.substr(at);
    }
  return "";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

int64_t last_cache() {
  for (int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(name); bytes > 0) return bytes;
  return int64_t{32} << 20;
}

}  // namespace

MachineFacts machine_facts() {
  return {.cpu = proc_value("/proc/cpuinfo", "model name"),
          .cores = usable_cores(),
          .last_cache_bytes = last_cache(),
          .memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE),
          .isa = isa_features()};
}

nlohmann::json to_json(const MachineFacts& f) {
  return {{"cpu", f.cpu},
          {"cores", f.cores},
          {"last_cache_bytes", f.last_cache_bytes},
          {"memory_bytes", f.memory_bytes},
          {"isa", f.isa}};
}

int64_t available_memory_bytes() {
  const std::string kib = proc_value("/proc/meminfo", "MemAvailable");
  return kib.empty() ? int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE) : std::stoll(kib) * 1024;
}

}  // namespace lathe
