#include "lathe/server.h"
#include "serve/metrics.h"
#include "serve/routes.h"

// Documents made from the tables of routes, fields, keys and metrics.
namespace lathe {

namespace {

using namespace serve;

Json schema_of(const Field& f) {
  Json s;
  const bool bounded = f.low != f.high;
  auto whole = [](double x) { return Json(static_cast<int64_t>(x)); };
  switch (f.type) {
    case FieldType::kBoolean:
      s["type"] = "boolean";
      break;
    case FieldType::kSeed:
      s["type"] = "integer";
      break;
    case FieldType::kInteger:
      s["type"] = "integer";
      s["minimum"] = whole(f.low);
      if (f.high < 2e9) s["maximum"] = whole(f.high);
      break;
    case FieldType::kNumber:
      s["type"] = "number";
      s[f.above_low ? "exclusiveMinimum" : "minimum"] = f.low;
      s["maximum"] = f.high;
      break;
    case FieldType::kString:
      s["type"] = "string";
      if (bounded) s["minLength"] = whole(f.low), s["maxLength"] = whole(f.high);
      break;
    case FieldType::kStrings:
      s["oneOf"] = Json::array(
          {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}, {"maxItems", whole(f.high)}}});
      break;
    case FieldType::kIntegers:
      s = {{"type", "array"}, {"items", {{"type", "integer"}}}, {"maxItems", whole(f.high)}};
      break;
    case FieldType::kObject:
      s["type"] = "object";
      break;
    case FieldType::kArray:
      s["type"] = "array";
      break;
    case FieldType::kAny:
    case FieldType::kIgnored:
      s = Json::object();
      break;
  }
  std::string text = f.meaning;
  if (*f.fallback) text += fmt::format(" (default: {})", f.fallback);
  s["description"] = text;
  return s;
}

Json required_of(unsigned api) {
  switch (api) {
    case Api::kChat:
    case Api::kRender:
    case Api::kCountTokens:
      return {"messages"};
    case Api::kMessages:
      return {"messages", "max_tokens"};
    case Api::kCompletions:
      return {"prompt"};
    case Api::kResponses:
      return {"input"};
    case Api::kDetokenize:
      return {"tokens"};
    default:
      return nullptr;
  }
}

std::string schema_name(const Route& r) {
  std::string name;
  bool upper = true;
  for (const char* c = r.path; *c; ++c) {
    if (!std::isalnum(static_cast<unsigned char>(*c)))
      upper = true;
    else
      name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(*c))) : *c, upper = false;
  }
  return name;
}

Json operation_of(const Route& r) {
  Json op = {{"summary", r.meaning},
             {"operationId", std::string(r.method[0] == 'G' ? "get" : "post") + schema_name(r)}};
  if (std::string_view(r.path).find("{id}") != std::string_view::npos)
    op["parameters"] =
        Json::array({{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  if (r.api)
    op["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/" + schema_name(r)}}}}}}}};
  const bool streams = r.api & (Api::kChat | Api::kCompletions | Api::kResponses | Api::kMessages);
  Json content = {{"application/json", Json::object()}};
  if (streams) content["text/event-stream"] = Json::object();
  if (r.id == RouteId::kMetrics) content = {{"text/plain", Json::object()}};
  if (r.id == RouteId::kPage) content = {{"text/html", Json::object()}};
  op["responses"] = {{"200", {{"description", "as asked"}, {"content", content}}}};
  auto error = [&](const char* status, const char* why) {
    op["responses"][status] = {{"$ref", std::string("#/components/responses/") + why}};
  };
  if (r.id != RouteId::kLive) error("401", "NoKey");
  if (r.api)
    error("400", "BadRequest"), error("413", "TooLarge"), error("415", "WrongType"), error("503", "Unavailable");
  if (streams) error("429", "Quota"), error("504", "Deadline");
  if (r.id == RouteId::kModel || r.id == RouteId::kCancel) error("404", "NotFound");
  if (r.id == RouteId::kLive || r.id == RouteId::kReady) error("503", "Unavailable");
  return op;
}

Json error_response(const char* description, bool retry = false) {
  Json r = {{"description", description},
            {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  if (retry) r["headers"] = {{"Retry-After", {{"schema", {{"type", "integer"}}}}}};
  return r;
}

std::string bounds_of(const Field& f) {
  switch (f.type) {
    case FieldType::kInteger:
      return f.high < 2e9 ? fmt::format("{}..{}", f.low, f.high) : fmt::format("{}..", f.low);
    case FieldType::kNumber:
      return fmt::format("{}{}..{}]", f.above_low ? "(" : "[", f.low, f.high);
    case FieldType::kString:
      return f.low == f.high ? "" : fmt::format("{}..{} bytes", f.low, f.high);
    case FieldType::kStrings:
    case FieldType::kIntegers:
      return fmt::format("at most {}", f.high);
    default:
      return "";
  }
}

const char* type_of(const Field& f) {
  switch (f.type) {
    case FieldType::kBoolean:
      return "boolean";
    case FieldType::kInteger:
    case FieldType::kSeed:
      return "integer";
    case FieldType::kNumber:
      return "number";
    case FieldType::kString:
      return "string";
    case FieldType::kStrings:
      return "string or list";
    case FieldType::kIntegers:
      return "list of ids";
    case FieldType::kObject:
      return "object";
    case FieldType::kArray:
      return "list";
    default:
      return "any";
  }
}

std::string apis_of(unsigned apis) {
  constexpr std::pair<unsigned, const char*> kNames[] = {
      {Api::kChat, "chat"},         {Api::kCompletions, "completions"},  {Api::kResponses, "responses"},
      {Api::kMessages, "messages"}, {Api::kCountTokens, "count_tokens"}, {Api::kRender, "render"},
      {Api::kTokenize, "tokenize"}, {Api::kDetokenize, "detokenize"}};
  std::string out;
  for (const auto& [bit, name] : kNames)
    if (apis & bit) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

}  // namespace

std::string server_openapi() {
  Json paths = Json::object(), schemas = Json::object();
  for (const Route& r : route_table()) {
    if (r.admin) continue;
    paths[r.path][r.method[0] == 'G' ? "get" : "post"] = operation_of(r);
    if (!r.api) continue;
    Json properties = Json::object();
    for (const Field& f : field_table())
      if (f.apis & r.api) properties[f.name] = schema_of(f);
    Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
    if (Json required = required_of(r.api); !required.is_null()) schema["required"] = required;
    schemas[schema_name(r)] = std::move(schema);
  }
  schemas["Error"] = {{"type", "object"},
                      {"properties",
                       {{"error",
                         {{"type", "object"},
                          {"properties",
                           {{"message", {{"type", "string"}}},
                            {"type", {{"type", "string"}}},
                            {"param", {{"type", Json::array({"string", "null"})}}},
                            {"code", {{"type", Json::array({"string", "null"})}}}}}}}}}};
  const Json all = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Lathe"}, {"version", "1"}, {"description", "HTTP APIs of lathe serve: see docs/serving.md"}}},
      {"paths", paths},
      {"components",
       {{"schemas", schemas},
        {"responses",
         {{"BadRequest", error_response("bad input; names the field")},
          {"NoKey", error_response("no key, or a wrong one")},
          {"NotFound", error_response("no such thing")},
          {"TooLarge", error_response("body over 64 MiB")},
          {"WrongType", error_response("Content-Type isn't application/json")},
          {"Quota", error_response("this key's quota is used up", true)},
          {"Unavailable", error_response("overloaded, loading or draining", true)},
          {"Deadline", error_response("the deadline passed before the first byte")}}},
        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({{{"key", Json::array()}}})}};
  return all.dump(1) + "\n";
}

std::string server_manual() {
  std::string out = "## Routes\n\n| route | what it does |\n|---|---|\n";
  for (const Route& r : route_table())
    out += fmt::format("| {} {}{} | {} |\n", r.method, r.path, r.admin ? " (admin listener)" : "", r.meaning);
  out += "\n## Fields of requests\n\n| field | in | type | bounds | default | meaning |\n|---|---|---|---|---|---|\n";
  std::string ignored;
  for (const Field& f : field_table()) {
    if (f.type == FieldType::kIgnored)
      ignored += (ignored.empty() ? "" : ", ") + std::string(f.name);
    else
      out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", f.name, apis_of(f.apis), type_of(f), bounds_of(f),
                         f.fallback, f.meaning);
  }
  out += fmt::format("\nAccepted without effect: {}.\n\n## Configuration\n", ignored);
  std::string group;
  for (const ConfigKey& k : server_config_keys()) {
    if (k.group != group)
      out += fmt::format("\n### {}\n\n| key | type | default | range | meaning |\n|---|---|---|---|---|\n", k.group);
    group = k.group;
    out += fmt::format("| {} | {} | {} | {} | {} |\n", k.name, k.type, k.fallback, k.range, k.meaning);
  }
  out += "\n## Metrics\n\nPrefix `lathe_`; labels model and role on all.\n\n| name | type | meaning |\n|---|---|---|\n";
  for (const MetricName& m : metric_names()) out += fmt::format("| {} | {} | {} |\n", m.name, m.type, m.meaning);
  return out;
}

}  // namespace lathe
