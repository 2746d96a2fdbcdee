#include "serve/routes.h"

namespace lathe::serve {

namespace {

std::string percent_decoded(std::string_view s) {
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size() && digit(s[i + 1]) >= 0 && digit(s[i + 2]) >= 0)
      out += static_cast<char>(digit(s[i + 1]) * 16 + digit(s[i + 2])), i += 2;
    else
      out += s[i];
  }
  return out;
}

// Whether `path` has the form of `pattern`; `id` is then what stands for "{id}".
bool fits(std::string_view path, std::string_view pattern, std::string& id) {
  const size_t hole = pattern.find("{id}");
  if (hole == std::string_view::npos) return path == pattern;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 4);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after)) return false;
  const std::string_view middle = path.substr(before.size(), path.size() - before.size() - after.size());
  if (middle.find('/') != std::string_view::npos) return false;
  id = percent_decoded(middle);
  return true;
}

}  // namespace

const std::vector<Route>& route_table() {
  using enum RouteId;
  static const std::vector<Route> table = {
      {kChat, "POST", "/v1/chat/completions", Api::kChat, "A reply to a conversation"},
      {kCompletions, "POST", "/v1/completions", Api::kCompletions, "A text goes on"},
      {kResponses, "POST", "/v1/responses", Api::kResponses, "A reply to a list of items; nothing is stored"},
      {kMessages, "POST", "/v1/messages", Api::kMessages, "A reply to a conversation, in Anthropic's shape"},
      {kCountTokens, "POST", "/v1/messages/count_tokens", Api::kCountTokens, "Tokens of a conversation"},
      {kRender, "POST", "/v1/chat/completions/render", Api::kRender,
       "A conversation as the model reads it: text and ids"},
      {kTokenize, "POST", "/tokenize", Api::kTokenize, "Text or a conversation to ids"},
      {kDetokenize, "POST", "/detokenize", Api::kDetokenize, "Ids to text"},
      {kModels, "GET", "/v1/models", 0, "The model that is served"},
      {kModel, "GET", "/v1/models/{id}", 0, "The same, alone"},
      {kCancel, "POST", "/v1/requests/{id}/cancel", 0, "Ends a request, by its reply's id or its X-Request-Id"},
      {kLive, "GET", "/health/live", 0, "Whether the process makes progress; needs no key"},
      {kReady, "GET", "/health/ready", 0, "Whether requests are taken"},
      {kReady, "GET", "/health", 0, "The same"},
      {kMetrics, "GET", "/metrics", 0, "Prometheus text"},
      {kVersion, "GET", "/version", 0, "Version, build, model, mode"},
      {kOpenApi, "GET", "/openapi.json", 0, "This interface as OpenAPI"},
      {kPage, "GET", "/", 0, "A page to chat and to watch"},
      {kDrain, "POST", "/admin/drain", 0, "No new requests; ends when the running ones have", true},
      {kUndrain, "POST", "/admin/undrain", 0, "Takes requests again", true},
      {kLogLevel, "POST", "/admin/log-level/{id}", 0, "debug, info, warning or error", true},
      {kFlushCache, "POST", "/admin/cache/flush", 0, "Forgets the prefix cache", true},
  };
  return table;
}

RouteMatch match_route(std::string_view method, std::string_view path, bool admin) {
  RouteMatch match;
  if (method == "HEAD") method = "GET";
  for (const Route& r : route_table()) {
    std::string id;
    if ((r.admin && !admin) || !fits(path, r.path, id)) continue;
    if (method == r.method) return {.route = &r, .id = std::move(id), .allowed = ""};
    match.allowed += (match.allowed.empty() ? "" : ", ") + std::string(r.method) +
                     (std::string_view(r.method) == "GET" ? ", HEAD" : "");
  }
  return match;
}

}  // namespace lathe::serve
