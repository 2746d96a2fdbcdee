#include "text/tool_types.h"

#include <nlohmann/json.hpp>

namespace lathe {

namespace {

using Json = nlohmann::json;

constexpr int kMostSteps = 200;  // through combinations and references of one argument's schema

uint8_t type_named(const std::string& name) {
  using T = JsonTypes;
  static const std::map<std::string, uint8_t> types = {
      {"null", T::kNull},     {"boolean", T::kBoolean}, {"integer", T::kInteger}, {"number", T::kInteger | T::kNumber},
      {"string", T::kString}, {"array", T::kArray},     {"object", T::kObject}};
  const auto found = types.find(name);
  return found == types.end() ? 0 : found->second;
}

uint8_t type_of_value(const Json& value) {
  using T = JsonTypes;
  if (value.is_null()) return T::kNull;
  if (value.is_boolean()) return T::kBoolean;
  if (value.is_number_float()) return T::kNumber;
  if (value.is_number()) return T::kInteger;
  if (value.is_string()) return T::kString;
  return value.is_array() ? T::kArray : T::kObject;
}

const Json* resolve(const Json& root, const std::string& reference) {
  if (!reference.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {  // no pointer
    return nullptr;
  }
}

// Types that `schema` allows; 0 if it doesn't say.
uint8_t types_of(const Json& root, const Json& schema, int& steps) {
  if (!schema.is_object() || ++steps > kMostSteps) return 0;
  uint8_t said = 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) said = type_named(*type);
    if (type->is_array())
      for (const Json& t : *type)
        if (t.is_string()) said |= type_named(t);
  }
  if (said != 0) return said;
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
    for (const Json& v : *values) said |= type_of_value(v);
  if (const auto value = schema.find("const"); value != schema.end()) said |= type_of_value(*value);
  if (said != 0) return said;
  if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string())
    if (const Json* target = resolve(root, *ref)) return types_of(root, *target, steps);
  for (const char* either : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(either);
    if (branches == schema.end() || !branches->is_array()) continue;
    for (const Json& branch : *branches) {
      const uint8_t types = types_of(root, branch, steps);
      if (types == 0) return 0;  // a branch that may be anything
      said |= types;
    }
    return said;
  }
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array())
    for (const Json& branch : *all)
      if (const uint8_t types = types_of(root, branch, steps)) said = said == 0 ? types : said & types;
  return said;
}

}  // namespace

ToolTypes::ToolTypes(std::string_view tools_json) {
  const Json tools = tools_json.empty() ? Json() : Json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    parameters_.emplace(function["name"].get<std::string>(),
                        std::make_unique<Json>(function.value("parameters", Json())));
  }
}

ToolTypes::~ToolTypes() = default;
ToolTypes::ToolTypes(ToolTypes&&) noexcept = default;

bool ToolTypes::declares(std::string_view name) const { return parameters_.contains(name); }

JsonTypes ToolTypes::of(std::string_view name, std::string_view argument) const {
  const auto tool = parameters_.find(name);
  if (tool == parameters_.end() || !tool->second->is_object()) return {};
  const Json& root = *tool->second;
  const auto properties = root.find("properties");
  int steps = 0;
  if (properties != root.end() && properties->is_object())
    if (const auto schema = properties->find(std::string(argument)); schema != properties->end())
      return {types_of(root, *schema, steps)};
  const auto others = root.find("additionalProperties");
  return {others == root.end() ? uint8_t{0} : types_of(root, *others, steps)};
}

}  // namespace lathe
