#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace lathe {

namespace {
constexpr int kBarWidth = 24;
constexpr const char* kEraseLine = "\r\033[K";
}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
  if (shown_) fmt::print(stderr, "{}", kEraseLine);
}

void ProgressLine::show(int done, int all, const std::string& what) {
  if (!terminal_) return;
  const int full = all > 0 ? done * kBarWidth / all : kBarWidth;
  fmt::print(stderr, "{}[{}{}] {}/{} {}", kEraseLine, std::string(full, '#'), std::string(kBarWidth - full, '.'), done,
             all, what);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace lathe
