#include "feedback/history.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "feedback/build_info.h"
#include "feedback/machine_facts.h"

namespace lathe {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

Status append_history(const std::string& path, const std::vector<NumberRow>& rows) {
  if (!std::filesystem::exists(path))
    return not_found("{}: no history there; run at the root of the repository, or name one with --history", path);
  std::ofstream file(path, std::ios::app);
  const nlohmann::json address = {{"time", utc_now()},
                                  {"commit", build_info().commit},
                                  {"build_id", build_info().build_id},
                                  {"machine", to_json(machine_facts())}};
  for (const NumberRow& row : rows) {
    nlohmann::json line = to_json(row);
    line.update(address);
    file << line.dump() << '\n';
  }
  return file.flush() ? Status::ok() : invalid("{}: can't write", path);
}

}  // namespace lathe
