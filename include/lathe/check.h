#pragma once

namespace lathe {

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace lathe

// An invariant of our own. If it fires, the bug is ours: the process stops with the expression.
#define LATHE_CHECK(expression)                               \
  do {                                                        \
    if (!(expression)) [[unlikely]]                           \
      ::lathe::check_failed(#expression, __FILE__, __LINE__); \
  } while (0)
