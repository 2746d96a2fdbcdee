#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "text/json_text.h"

namespace lathe {

// The tools that a request declares, as far as reading calls needs them: names, and which types their arguments may
// have. What isn't JSON, or no list of tools, declares nothing.
class ToolTypes {
 public:
  explicit ToolTypes(std::string_view tools_json);  // [{"type": "function", "function": {...}}] or the inner objects
  ~ToolTypes();
  ToolTypes(ToolTypes&&) noexcept;

  bool declares(std::string_view name) const;
  // By "type", "enum" and "const", through anyOf, oneOf, allOf and $ref; none where the schema doesn't say.
  JsonTypes of(std::string_view name, std::string_view argument) const;

 private:
  std::map<std::string, std::unique_ptr<nlohmann::json>, std::less<>> parameters_;  // by name: the schema
};

}  // namespace lathe
