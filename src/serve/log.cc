#include "serve/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace lathe::serve {

namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, ms);
}

}  // namespace

LogLevel log_level_of(const std::string& name) {
  for (int i = 0; i < 4; ++i)
    if (name == kNames[i]) return static_cast<LogLevel>(i);
  return LogLevel::kInfo;
}

void Log::write(LogLevel level, const char* event, Json fields) const {
  if (level < least_) return;
  Json line = {{"time", timestamp()}, {"level", kNames[static_cast<int>(level)]}, {"event", event}};
  for (auto& [key, value] : fields.items()) line[key] = std::move(value);
  const std::string text = dump(line) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace lathe::serve
