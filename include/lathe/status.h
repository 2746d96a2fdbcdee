#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lathe/check.h"

namespace lathe {

// What went wrong, as far as a caller can act on it. Bad input, full pools and lost peers are values;
// broken invariants are LATHE_CHECK.
enum class StatusCode {
  kOk,
  kInvalid,      // an argument or a request breaks its contract
  kNotFound,     // a file, tensor or field isn't there
  kCorrupt,      // bytes from outside don't parse or contradict themselves
  kUnavailable,  // this build or machine lacks what is needed
  kExhausted,    // a pool or a budget is full; may pass later
  kInternal,     // ours to fix
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status ok() { return {}; }

  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error, told from further out: "loading model/: config.json: ...".
  Status within(std::string_view place) const {
    return is_ok() ? *this : Status(code_, fmt::format("{}: {}", place, message_));
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <class... A>
Status invalid(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kInvalid, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status not_found(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kNotFound, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status corrupt(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kCorrupt, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status unavailable(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kUnavailable, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status exhausted(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kExhausted, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status internal(fmt::format_string<A...> f, A&&... a) {
  return {StatusCode::kInternal, fmt::format(f, std::forward<A>(a)...)};
}

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { LATHE_CHECK(!status_.is_ok()); }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    LATHE_CHECK(is_ok());
    return *value_;
  }
  const T& value() const& {
    LATHE_CHECK(is_ok());
    return *value_;
  }
  // By value: what a temporary gives outlives it, so `for (x : f().value())` is safe.
  T value() && {
    LATHE_CHECK(is_ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

// LATHE_RETURN_IF_ERROR(expr): leave with expr's error. LATHE_ASSIGN(x, expr): x = value, or leave.
#define LATHE_RETURN_IF_ERROR(expr)                          \
  do {                                                       \
    if (::lathe::Status s_ = (expr); !s_.is_ok()) return s_; \
  } while (0)
#define LATHE_CONCAT_(a, b) a##b
#define LATHE_CONCAT(a, b) LATHE_CONCAT_(a, b)
#define LATHE_ASSIGN(declaration, expr) LATHE_ASSIGN_(LATHE_CONCAT(result_, __LINE__), declaration, expr)
#define LATHE_ASSIGN_(result, declaration, expr) \
  auto result = (expr);                          \
  if (!result.is_ok()) return result.status();   \
  declaration = std::move(result).value()

}  // namespace lathe
