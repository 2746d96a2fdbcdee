#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/grammar/character_set.h"
#include "text/grammar/json_rules.h"
#include "text/grammar/regex.h"

namespace lathe {

// Turns one checked JSON Schema document into rules. Texts that match are valid instances, but not every valid instance
// is a text that matches: properties come in the order in which they are declared (those not required may be left
// out), strings with a pattern are written with as few escapes as possible, constants as they stand in the schema.
class SchemaRules {
 public:
  // plain_text: a rule for what a string may be where it is written without quotes, or -1.
  SchemaRules(AutomatonBuilder& builder, JsonRules& json, const nlohmann::ordered_json& root, int32_t plain_text = -1)
      : builder_(&builder), json_(&json), root_(&root), plain_text_(plain_text) {}

  // A rule for `schema`, a part of the document. With Writing::kPlain a value that is a string is written as it is.
  Result<int32_t> add(const nlohmann::ordered_json& schema, Writing writing);

 private:
  using Json = nlohmann::ordered_json;
  struct Place {  // between which states, what it is called in messages
    int32_t from, to;
    std::string path;
    Writing writing = Writing::kJsonString;
  };
  struct Property {
    std::string name;
    Json schema;
    bool required;
  };

  void fail(const std::string& path, const Status& status);
  void add_value(const Json& schema, const Place& place);
  void add_flat(const Json& schema, const Place& place);
  void add_branches(const Json& schema, const char* keyword, const Place& place);
  void add_constants(const Json& schema, const Place& place);
  void add_type(const std::string& type, const Json& schema, const Place& place);
  void add_object(const Json& schema, const Place& place);
  void add_array(const Json& schema, const Place& place);
  void add_string(const Json& schema, const Place& place);
  void add_number(const Json& schema, const Place& place, bool integer);
  void add_any(const Place& place);
  void add_reference(const std::string& reference, const Place& place);
  std::vector<Property> properties_of(const Json& schema, const std::string& path);
  std::vector<std::pair<int32_t, Json>> other_properties(const Json& schema, const std::vector<Property>& declared,
                                                         const std::string& path);
  int32_t string_rule(const std::string& pattern, RegexMatch match, Writing writing, bool alone,
                      const std::string& path);

  AutomatonBuilder* builder_;
  JsonRules* json_;
  const Json* root_;
  int32_t plain_text_;
  std::map<std::pair<std::string, Writing>, int32_t> references_;
  std::vector<std::pair<std::pair<std::string, Writing>, int32_t>> todo_;
  std::map<std::pair<std::string, Writing>, int32_t> strings_;
  Status status_;
};

}  // namespace lathe
