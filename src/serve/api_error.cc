#include "serve/api_error.h"

#include "serve/json.h"

namespace lathe::serve {

namespace {

// The Messages API has a word of its own for each status.
const char* messages_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError bad_request(std::string param, std::string message, std::string code) {
  if (!param.empty() && message.find(param) == std::string::npos) message = param + ": " + message;
  return {.message = std::move(message), .param = std::move(param), .code = std::move(code)};
}

ApiError unavailable_now(std::string message, std::string code, int retry_after) {
  return {.status = 503,
          .type = "server_error",
          .message = std::move(message),
          .code = std::move(code),
          .retry_after = retry_after};
}

std::string error_json(const ApiError& e, ErrorShape shape) {
  if (shape == ErrorShape::kMessages)
    return dump({{"type", "error"}, {"error", {{"type", messages_type(e.status)}, {"message", e.message}}}});
  Json error = {{"message", e.message}, {"type", e.type}, {"param", nullptr}, {"code", nullptr}};
  if (!e.param.empty()) error["param"] = e.param;
  if (!e.code.empty()) error["code"] = e.code;
  return dump({{"error", std::move(error)}});
}

HttpReply error_reply(const ApiError& e, ErrorShape shape) {
  HttpReply r{.status = e.status, .body = error_json(e, shape)};
  if (e.retry_after > 0) r.headers.push_back({"Retry-After", std::to_string(e.retry_after)});
  return r;
}

}  // namespace lathe::serve
