#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace lathe::serve {

// What a client is told when a request isn't served. Texts are general: no addresses, paths or prompts.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;  // "": none
  std::string code;
  int retry_after = 0;  // seconds; 0: don't say
};

// Each API tells errors in its own shape.
enum class ErrorShape { kOpenAi, kMessages };

ApiError bad_request(std::string param, std::string message, std::string code = "invalid_value");
ApiError unavailable_now(std::string message, std::string code, int retry_after);

std::string error_json(const ApiError& error, ErrorShape shape);
HttpReply error_reply(const ApiError& error, ErrorShape shape);

// Keeps the first thing that was wrong, so that a request can be read straight down and checked once.
class Errors {
 public:
  void bad(std::string param, std::string message, std::string code = "invalid_value") {
    if (!first_) first_ = bad_request(std::move(param), std::move(message), std::move(code));
  }
  void fail(ApiError error) {
    if (!first_) first_ = std::move(error);
  }
  bool any() const { return first_.has_value(); }
  const ApiError& first() const { return *first_; }

 private:
  std::optional<ApiError> first_;
};

}  // namespace lathe::serve
