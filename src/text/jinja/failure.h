#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace lathe::jinja {

// Thrown inside this folder only: Template ends it, as a Status with file and line.
struct Failure {
  std::string message;
};

template <class... A>
[[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) {
  throw Failure{fmt::format(f, std::forward<A>(a)...)};
}

}  // namespace lathe::jinja
