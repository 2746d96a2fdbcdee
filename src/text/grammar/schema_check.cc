#include "text/grammar/schema_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

enum class Value { kSchema, kSchemas, kNamedSchemas, kNames, kText, kCount, kNumber, kValues, kAny, kType };

struct Keyword {
  std::string_view name;
  Value value;
};

constexpr Keyword kKeywords[] = {
    {"type", Value::kType},
    {"properties", Value::kNamedSchemas},
    {"required", Value::kNames},
    {"additionalProperties", Value::kSchema},
    {"patternProperties", Value::kNamedSchemas},
    {"items", Value::kSchema},
    {"prefixItems", Value::kSchemas},
    {"minItems", Value::kCount},
    {"maxItems", Value::kCount},
    {"minLength", Value::kCount},
    {"maxLength", Value::kCount},
    {"pattern", Value::kText},
    {"format", Value::kText},
    {"enum", Value::kValues},
    {"const", Value::kAny},
    {"minimum", Value::kNumber},
    {"maximum", Value::kNumber},
    {"exclusiveMinimum", Value::kNumber},
    {"exclusiveMaximum", Value::kNumber},
    {"anyOf", Value::kSchemas},
    {"oneOf", Value::kSchemas},
    {"allOf", Value::kSchemas},
    {"$ref", Value::kText},
    {"$defs", Value::kNamedSchemas},
    {"definitions", Value::kNamedSchemas},
};

const Keyword* find_keyword(std::string_view name) {
  for (const Keyword& k : kKeywords)
    if (k.name == name) return &k;
  return nullptr;
}

constexpr std::string_view kAnnotations[] = {"title",    "description", "default",  "examples",  "$schema",
                                             "$comment", "deprecated",  "readOnly", "writeOnly", "$id"};

constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

bool is_type(const Json& v) {
  return v.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), v.get_ref<const std::string&>()) != std::end(kTypes);
}

bool all_strings(const Json& v) {
  return v.is_array() && std::all_of(v.begin(), v.end(), [](const Json& s) { return s.is_string(); });
}

bool fits(Value value, const Json& v) {
  switch (value) {
    case Value::kSchema:
      return v.is_object() || v.is_boolean();
    case Value::kSchemas:
      return v.is_array() && !v.empty();
    case Value::kNamedSchemas:
      return v.is_object();
    case Value::kNames:
      return all_strings(v);
    case Value::kText:
      return v.is_string();
    case Value::kCount:
      return v.is_number_unsigned();
    case Value::kNumber:
      return v.is_number();
    case Value::kValues:
      return v.is_array() && !v.empty();
    case Value::kAny:
      return true;
    case Value::kType:
      return is_type(v) || (v.is_array() && !v.empty() && std::all_of(v.begin(), v.end(), is_type));
  }
  return false;
}

class Check {
 public:
  explicit Check(const GrammarLimits& limits) : limits_(limits) {}

  Status run(const Json& schema) {
    visit(schema, "#", 1);
    if (!status_.is_ok()) return status_;
    if (!unsupported_.empty()) return invalid("schema: keywords that aren't supported: {}", unsupported_);
    return Status::ok();
  }

 private:
  void fail(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
  }

  void visit(const Json& schema, const std::string& path, int depth) {
    if (!status_.is_ok() || schema.is_boolean()) return;
    if (!schema.is_object()) return fail(invalid("schema: {} must be an object or a boolean", path));
    if (depth > limits_.schema_depth)
      return fail(invalid("schema: deeper than {} levels at {}", limits_.schema_depth, path));
    if (++nodes_ > limits_.schema_nodes) return fail(invalid("schema: more than {} subschemas", limits_.schema_nodes));
    for (const auto& [name, value] : schema.items()) {
      const std::string here = path + "/" + name;
      const Keyword* known = find_keyword(name);
      if (known == nullptr) {
        if (name == "uniqueItems" && value == false) continue;
        if (!is_annotation(name)) unsupported_ += (unsupported_.empty() ? "" : ", ") + here;
        continue;
      }
      if (!fits(known->value, value)) return fail(invalid("schema: {} has a value of the wrong kind", here));
      if (known->value == Value::kSchema) visit(value, here, depth + 1);
      if (known->value == Value::kSchemas)
        for (size_t i = 0; i < value.size(); ++i) visit(value[i], here + "/" + std::to_string(i), depth + 1);
      if (known->value == Value::kNamedSchemas)
        for (const auto& [key, inner] : value.items()) visit(inner, here + "/" + key, depth + 1);
      if (known->value == Value::kValues) enum_values_ += static_cast<int>(value.size());
      if (known->value == Value::kCount && value.get<uint64_t>() > (1u << 30))
        return fail(invalid("schema: {} is more than 2^30", here));
      if (name == "pattern" && value.get_ref<const std::string&>().size() > static_cast<size_t>(limits_.pattern_bytes))
        return fail(invalid("schema: {} is longer than {} bytes", here, limits_.pattern_bytes));
      if (enum_values_ > limits_.enum_values)
        return fail(invalid("schema: more than {} enum values", limits_.enum_values));
    }
  }

  const GrammarLimits& limits_;
  int nodes_ = 0, enum_values_ = 0;
  std::string unsupported_;
  Status status_;
};

// Brackets within one another; JSON text of any depth is safe to look at, a tree of it isn't to all who walk it.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    in_string = c == '"';
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    most = std::max(most, depth);
  }
  return most;
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) != std::end(kAnnotations);
}

Status check_schema(const Json& schema, const GrammarLimits& limits) { return Check(limits).run(schema); }

Result<Json> read_schema(std::string_view text, const GrammarLimits& limits) {
  if (text.size() > static_cast<size_t>(limits.schema_bytes))
    return invalid("schema: {} bytes, more than {}", text.size(), limits.schema_bytes);
  // A level of schema is up to three of JSON: {"properties": {"a": ...
  if (depth_of(text) > 3 * limits.schema_depth) return invalid("schema: deeper than {} levels", limits.schema_depth);
  Json schema = Json::parse(text, nullptr, false);
  if (schema.is_discarded()) return invalid("schema: not JSON");
  LATHE_RETURN_IF_ERROR(check_schema(schema, limits));
  return schema;
}

}  // namespace lathe
