#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// A process with which one exchanges lines over its stdin and stdout. It is ended with this object.
class TalkingChild {
 public:
  static Result<std::unique_ptr<TalkingChild>> start(const std::vector<std::string>& command);
  ~TalkingChild();
  TalkingChild(const TalkingChild&) = delete;

  Status say(const std::string& line);
  Result<std::string> line(int timeout_ms);

 private:
  TalkingChild() = default;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string unread_;
};

}  // namespace lathe
