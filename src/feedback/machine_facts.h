#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lathe {

// What a number measured here must be read beside.
struct MachineFacts {
  std::string cpu;
  int cores = 1;  // that this process may use
  int64_t last_cache_bytes = 0;
  int64_t memory_bytes = 0;
  std::string isa;
};
MachineFacts machine_facts();
nlohmann::json to_json(const MachineFacts& facts);

// Memory that can still be taken without pushing anybody out.
int64_t available_memory_bytes();

}  // namespace lathe
