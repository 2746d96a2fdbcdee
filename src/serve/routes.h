#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/fields.h"

namespace lathe::serve {

enum class RouteId {
  kChat,
  kCompletions,
  kResponses,
  kMessages,
  kCountTokens,
  kRender,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kCancel,
  kLive,
  kReady,
  kMetrics,
  kVersion,
  kOpenApi,
  kPage,
  kDrain,
  kUndrain,
  kLogLevel,
  kFlushCache,
};

struct Route {
  RouteId id;
  const char *method, *path;  // "{id}" stands for one segment
  unsigned api;               // whose fields its body has; 0: no body
  const char* meaning;
  bool admin = false;  // only through the admin listener
};

const std::vector<Route>& route_table();

struct RouteMatch {
  const Route* route = nullptr;
  std::string id;       // of "{id}", percent-decoded
  std::string allowed;  // methods of the path, where the method was wrong; "": no such path
};
// HEAD is GET without a body.
RouteMatch match_route(std::string_view method, std::string_view path, bool admin);

}  // namespace lathe::serve
