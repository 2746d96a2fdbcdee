#pragma once

#include <atomic>
#include <string>

#include "serve/json.h"

namespace lathe::serve {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One JSON object a line, on stderr. Any thread; a line is written in one call.
class Log {
 public:
  explicit Log(LogLevel least) : least_(least) {}
  void set_level(LogLevel least) { least_ = least; }
  void write(LogLevel level, const char* event, Json fields) const;

 private:
  std::atomic<LogLevel> least_;
};

LogLevel log_level_of(const std::string& name);  // "info" where the name isn't known

}  // namespace lathe::serve
