#include "serve/structured.h"

namespace lathe::serve {

namespace {

using Kind = GrammarSource::Kind;

std::optional<GrammarSource> schema_source(const Json& schema, const std::string& param, Errors& errors) {
  if (!schema.is_object() && !schema.is_boolean()) {
    errors.bad(param, param + " must be a JSON schema", "invalid_type");
    return std::nullopt;
  }
  return GrammarSource{.kind = Kind::kJsonSchema, .text = dump(schema), .choices = {}};
}

// {"type": ...} of response_format (schema inside json_schema) or of text.format (schema beside type).
std::optional<GrammarSource> read_format(const Json& format, const std::string& param, bool nested, Errors& errors) {
  const Json& type = member(format, "type");
  if (type == "text" || format.is_null()) return std::nullopt;
  if (type == "json_object") return GrammarSource{.kind = Kind::kJsonObject, .text = "", .choices = {}};
  if (type == "json_schema") {
    const Json& holder = nested ? member(format, "json_schema") : format;
    const std::string at = nested ? param + ".json_schema.schema" : param + ".schema";
    return schema_source(member(holder, "schema"), at, errors);
  }
  errors.bad(param + ".type", param + ".type must be text, json_object or json_schema");
  return std::nullopt;
}

std::vector<std::string> read_choices(const Json& list, const std::string& param, Errors& errors) {
  std::vector<std::string> choices;
  if (!list.is_array() || list.empty() || list.size() > 10'000)
    errors.bad(param, param + " must be a list of 1 to 10000 strings");
  for (size_t i = 0; list.is_array() && i < list.size() && !errors.any(); ++i) {
    if (!list[i].is_string())
      errors.bad(param, fmt::format("{}[{}] must be a string", param, i), "invalid_type");
    else
      choices.push_back(list[i].get<std::string>());
  }
  return choices;
}

std::string text_of(const Json& v, const std::string& param, Errors& errors) {
  if (v.is_string()) return v.get<std::string>();
  errors.bad(param, param + " must be a string", "invalid_type");
  return "";
}

}  // namespace

std::optional<GrammarSource> read_structure(const Fields& f, Errors& errors) {
  std::vector<GrammarSource> asked;
  auto add = [&](std::optional<GrammarSource> s) {
    if (s) asked.push_back(std::move(*s));
  };
  add(read_format(f.response_format, "response_format", true, errors));
  if (f.text.is_object()) add(read_format(member(f.text, "format"), "text.format", false, errors));
  for (const auto& [key, value] : f.structured_outputs.items()) {  // of null: none
    const std::string param = "structured_outputs." + key;
    if (value.is_null()) continue;
    if (key == "json")
      add(value.is_string() ? schema_source(Json::parse(value.get<std::string>(), nullptr, false), param, errors)
                            : schema_source(value, param, errors));
    else if (key == "regex")
      add(GrammarSource{.kind = Kind::kRegex, .text = text_of(value, param, errors), .choices = {}});
    else if (key == "grammar")
      add(GrammarSource{.kind = Kind::kEbnf, .text = text_of(value, param, errors), .choices = {}});
    else if (key == "choice")
      add(GrammarSource{.kind = Kind::kChoice, .text = "", .choices = read_choices(value, param, errors)});
    else
      errors.bad(param, param + " isn't known; there are json, regex, choice and grammar");
  }
  if (f.guided_json.is_string())
    add(schema_source(Json::parse(f.guided_json.get<std::string>(), nullptr, false), "guided_json", errors));
  else if (!f.guided_json.is_null())
    add(schema_source(f.guided_json, "guided_json", errors));
  if (f.guided_regex) add(GrammarSource{.kind = Kind::kRegex, .text = *f.guided_regex, .choices = {}});
  if (f.guided_grammar) add(GrammarSource{.kind = Kind::kEbnf, .text = *f.guided_grammar, .choices = {}});
  if (!f.guided_choice.empty()) add(GrammarSource{.kind = Kind::kChoice, .text = "", .choices = f.guided_choice});
  if (asked.size() > 1)
    errors.bad("response_format", "the output can follow only one of response_format, structured_outputs and guided_*");
  if (asked.empty() || errors.any()) return std::nullopt;
  return std::move(asked[0]);
}

std::string structure_param(const Fields& f) {
  if (!f.response_format.is_null()) return "response_format";
  if (f.text.is_object() && f.text.contains("format")) return "text.format";
  if (!f.structured_outputs.is_null()) return "structured_outputs";
  if (!f.guided_json.is_null()) return "guided_json";
  return f.guided_regex ? "guided_regex" : f.guided_grammar ? "guided_grammar" : "guided_choice";
}

std::optional<GrammarSource> forced_calls(const Conversation& c) {
  if (c.choice.kind != ToolChoice::Kind::kRequired && c.choice.kind != ToolChoice::Kind::kNamed) return std::nullopt;
  GrammarSource source{.kind = Kind::kToolCalls, .text = dump(c.tools), .choices = {}, .parallel = c.parallel_calls};
  if (c.choice.kind == ToolChoice::Kind::kNamed) source.choices = {c.choice.name};
  return source;
}

}  // namespace lathe::serve
