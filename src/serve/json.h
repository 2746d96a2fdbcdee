#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lathe::serve {

// Keys stay in the order in which they came: templates print them so.
using Json = nlohmann::ordered_json;

// A member of an object; null if there is none, or no object.
inline const Json& member(const Json& object, const char* name) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto it = object.find(name);
  return it == object.end() ? null : *it;
}

inline std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace lathe::serve
