#include "text/grammar/schema_merge.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/grammar/schema_check.h"
#include "text/json_text.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSteps = 64;  // references and allOf within one another

bool is_definition(const std::string& keyword) { return keyword == "$defs" || keyword == "definitions"; }

Json both(const Json& a, const Json& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", Json::array({a, b})}};
}

uint8_t bits_of(const Json& type) {
  using T = JsonTypes;
  if (type.is_array()) {
    uint8_t bits = 0;
    for (const Json& t : type) bits |= bits_of(t);
    return bits;
  }
  const std::string& name = type.get_ref<const std::string&>();
  if (name == "null") return T::kNull;
  if (name == "boolean") return T::kBoolean;
  if (name == "integer") return T::kInteger;
  if (name == "number") return T::kInteger | T::kNumber;
  if (name == "string") return T::kString;
  return name == "array" ? T::kArray : T::kObject;
}

Json type_of_bits(uint8_t bits) {
  using T = JsonTypes;
  Json types = Json::array();
  if (bits & T::kNull) types.push_back("null");
  if (bits & T::kBoolean) types.push_back("boolean");
  if (bits & T::kNumber)
    types.push_back("number");
  else if (bits & T::kInteger)
    types.push_back("integer");
  if (bits & T::kString) types.push_back("string");
  if (bits & T::kArray) types.push_back("array");
  if (bits & T::kObject) types.push_back("object");
  return types.size() == 1 ? types[0] : types;
}

uint8_t bits_of_value(const Json& v) {
  using T = JsonTypes;
  if (v.is_null()) return T::kNull;
  if (v.is_boolean()) return T::kBoolean;
  if (v.is_number()) return v.is_number_float() ? T::kInteger | T::kNumber : T::kInteger;
  if (v.is_string()) return T::kString;
  return v.is_array() ? T::kArray : T::kObject;
}

// Which types a flat schema allows, at most.
uint8_t types_of(const Json& schema) {
  constexpr uint8_t kAll = 127;
  if (!schema.is_object()) return schema == false ? 0 : kAll;
  uint8_t bits = schema.contains("type") ? bits_of(schema["type"]) : kAll;
  if (schema.contains("enum")) {
    uint8_t values = 0;
    for (const Json& v : schema["enum"]) values |= bits_of_value(v);
    bits &= values;
  }
  return bits;
}

class Merge {
 public:
  Merge(const Json& a, const Json& b) : a_(a), b_(b) {}

  Result<Json> run() {
    if (a_ == false || b_ == false) return Json(false);
    if (!a_.is_object()) return b_;
    if (!b_.is_object()) return a_;
    Json out = a_;
    for (const auto& [name, value] : b_.items())
      if (!out.contains(name)) out[name] = value;
    if (has("type")) {
      const uint8_t bits = bits_of(a_["type"]) & bits_of(b_["type"]);
      if (bits == 0) return Json(false);
      out["type"] = type_of_bits(bits);
    }
    if (has("enum")) {
      Json values = Json::array();
      for (const Json& v : a_["enum"])
        if (std::find(b_["enum"].begin(), b_["enum"].end(), v) != b_["enum"].end()) values.push_back(v);
      if (values.empty()) return Json(false);
      out["enum"] = values;
    }
    for (const char* name : {"minItems", "minLength", "minimum", "exclusiveMinimum"})
      if (has(name)) out[name] = a_[name] < b_[name] ? b_[name] : a_[name];
    for (const char* name : {"maxItems", "maxLength", "maximum", "exclusiveMaximum"})
      if (has(name)) out[name] = b_[name] < a_[name] ? b_[name] : a_[name];
    if (has("pattern")) {  // a list, from here on
      out["pattern"] = as_list(a_["pattern"]);
      for (const Json& p : as_list(b_["pattern"])) out["pattern"].push_back(p);
    }
    for (const char* name : {"format", "anyOf", "oneOf"})
      if (has(name) && a_[name] != b_[name])
        return invalid("two different '{}' that must both hold can't be combined", name);
    merge_arrays(out);
    LATHE_RETURN_IF_ERROR(merge_objects(out));
    return out;
  }

 private:
  bool has(const char* name) const { return a_.contains(name) && b_.contains(name); }
  static Json as_list(const Json& v) { return v.is_array() ? v : Json::array({v}); }
  static Json item(const Json& schema, size_t i) {
    if (schema.contains("prefixItems") && i < schema["prefixItems"].size()) return schema["prefixItems"][i];
    return schema.value("items", Json(true));
  }

  void merge_arrays(Json& out) const {
    const size_t n = std::max(a_.contains("prefixItems") ? a_["prefixItems"].size() : 0,
                              b_.contains("prefixItems") ? b_["prefixItems"].size() : 0);
    for (size_t i = 0; i < n; ++i) {
      if (i == 0) out["prefixItems"] = Json::array();
      out["prefixItems"].push_back(both(item(a_, i), item(b_, i)));
    }
    if (a_.contains("items") || b_.contains("items"))
      out["items"] = both(a_.value("items", Json(true)), b_.value("items", Json(true)));
  }

  // The property as the one schema sees it.
  static Json property(const Json& schema, const std::string& name) {
    if (schema.contains("properties") && schema["properties"].contains(name)) return schema["properties"][name];
    return schema.value("additionalProperties", Json(true));
  }

  Status merge_objects(Json& out) const {
    const bool a = a_.contains("properties") || a_.contains("additionalProperties"),
               b = b_.contains("properties") || b_.contains("additionalProperties");
    const bool patterns = a_.contains("patternProperties") || b_.contains("patternProperties");
    if (patterns && a && b) return invalid("'patternProperties' can't be combined with another schema of properties");
    if (has("patternProperties") && a_["patternProperties"] != b_["patternProperties"])
      return invalid("two different 'patternProperties' can't be combined");
    if (has("required")) {
      for (const Json& name : b_["required"])
        if (std::find(out["required"].begin(), out["required"].end(), name) == out["required"].end())
          out["required"].push_back(name);
    }
    if (!a || !b) return Status::ok();
    Json properties = Json::object();
    for (const Json* schema : {&a_, &b_})
      if (schema->contains("properties"))
        for (const auto& [name, ignored] : (*schema)["properties"].items())
          properties[name] = both(property(a_, name), property(b_, name));
    out["properties"] = properties;
    if (a_.contains("additionalProperties") || b_.contains("additionalProperties"))
      out["additionalProperties"] =
          both(a_.value("additionalProperties", Json(true)), b_.value("additionalProperties", Json(true)));
    return Status::ok();
  }

  const Json &a_, &b_;
};

Result<Json> flatten(const Json& root, const Json& schema, int steps) {
  if (!schema.is_object()) return schema;
  if (steps > kMostSteps) return invalid("'$ref' and 'allOf' lead in a circle, or more than {} deep", kMostSteps);
  Json out = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (name == "$ref" || name == "allOf" || is_annotation(name) || is_definition(name)) continue;
    if (name == "const")
      out["enum"] = Json::array({value});
    else if (name != "enum" || !schema.contains("const"))
      out[name] = value;
  }
  auto add = [&](const Json& part) -> Status {
    LATHE_ASSIGN(const Json flat, flatten(root, part, steps + 1));
    LATHE_ASSIGN(out, merge_schemas(out, flat));
    return Status::ok();
  };
  if (schema.contains("const") && schema.contains("enum"))
    if (std::find(schema["enum"].begin(), schema["enum"].end(), schema["const"]) == schema["enum"].end())
      return Json(false);
  if (schema.contains("$ref")) {
    LATHE_ASSIGN(const Json* target, resolve_reference(root, schema["$ref"]));
    LATHE_RETURN_IF_ERROR(add(*target));
  }
  if (schema.contains("allOf"))
    for (const Json& part : schema["allOf"]) LATHE_RETURN_IF_ERROR(add(part));
  return out;
}

bool disjoint(const Json& root, const Json& a, const Json& b, int depth);

// A property that `a` demands and that in `b` can't have such a value, or can't be there.
bool told_apart(const Json& root, const Json& a, const Json& b, int depth) {
  if (!a.contains("required")) return false;
  for (const Json& name : a["required"]) {
    const std::string& key = name.get_ref<const std::string&>();
    const bool in_b = b.contains("properties") && b["properties"].contains(key);
    if (!in_b) {
      if (b.value("additionalProperties", Json(true)) == false && !b.contains("patternProperties")) return true;
      continue;
    }
    if (!a.contains("properties") || !a["properties"].contains(key)) continue;
    const auto x = flatten(root, a["properties"][key], 0), y = flatten(root, b["properties"][key], 0);
    // If b doesn't demand it, it still can't be there with this value.
    if (x.is_ok() && y.is_ok() && disjoint(root, *x, *y, depth + 1)) return true;
  }
  return false;
}

bool disjoint(const Json& root, const Json& a, const Json& b, int depth) {
  if (depth > 8) return false;
  // Every integer is a number, whether it is written with a point or not.
  auto widened = [](uint8_t bits) {
    return bits & (JsonTypes::kInteger | JsonTypes::kNumber) ? bits | JsonTypes::kInteger | JsonTypes::kNumber : bits;
  };
  const int shared = widened(types_of(a)) & widened(types_of(b));
  if (shared == 0) return true;
  if (!a.is_object() || !b.is_object()) return false;
  if (a.contains("enum") && b.contains("enum"))
    return std::none_of(a["enum"].begin(), a["enum"].end(), [&](const Json& v) {
      return std::find(b["enum"].begin(), b["enum"].end(), v) != b["enum"].end();
    });
  return shared == JsonTypes::kObject && (told_apart(root, a, b, depth) || told_apart(root, b, a, depth));
}

}  // namespace

Result<const Json*> resolve_reference(const Json& root, const std::string& reference) {
  if (!reference.starts_with('#')) return invalid("'$ref' to '{}': only references inside the document", reference);
  std::string pointer;  // percent signs are the URI's
  for (size_t i = 1; i < reference.size(); ++i) {
    if (reference[i] == '%' && i + 2 < reference.size() && isxdigit(static_cast<unsigned char>(reference[i + 1])) &&
        isxdigit(static_cast<unsigned char>(reference[i + 2]))) {
      pointer += static_cast<char>(std::stoi(reference.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      pointer += reference[i];
    }
  }
  try {
    const Json::json_pointer at(pointer);
    if (root.contains(at) && (root.at(at).is_object() || root.at(at).is_boolean())) return &root.at(at);
  } catch (const Json::exception&) {  // no pointer: an anchor, say
  }
  return invalid("'$ref' to '{}': there's no schema in the document", reference);
}

Result<Json> flatten_schema(const Json& root, const Json& schema) { return flatten(root, schema, 0); }

Result<Json> merge_schemas(const Json& a, const Json& b) { return Merge(a, b).run(); }

bool are_disjoint(const Json& root, const Json& a, const Json& b) { return disjoint(root, a, b, 0); }

}  // namespace lathe
