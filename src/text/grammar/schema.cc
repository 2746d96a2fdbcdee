#include "text/grammar/schema.h"

#include <algorithm>
#include <cmath>

#include "text/grammar/formats.h"
#include "text/grammar/number_range.h"
#include "text/grammar/schema_check.h"
#include "text/grammar/schema_merge.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kObjectWords[] = {"properties", "required", "additionalProperties", "patternProperties"};
constexpr const char* kArrayWords[] = {"items", "prefixItems", "minItems", "maxItems"};
constexpr const char* kStringWords[] = {"minLength", "maxLength", "pattern", "format"};
constexpr const char* kNumberWords[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

template <size_t N>
bool has_any(const Json& schema, const char* const (&words)[N]) {
  return std::any_of(std::begin(words), std::end(words), [&](const char* w) { return schema.contains(w); });
}

// Types that are asked for, or that the keywords are about.
std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    if (type.is_string()) return {type.get<std::string>()};
    for (const Json& t : type) types.push_back(t.get<std::string>());
    if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
    return types;
  }
  if (has_any(schema, kObjectWords)) types.push_back("object");
  if (has_any(schema, kArrayWords)) types.push_back("array");
  if (has_any(schema, kStringWords)) types.push_back("string");
  if (has_any(schema, kNumberWords)) types.push_back("number");
  return types;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number" || value.is_number_integer()) return value.is_number();
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
}

// A reference, with nothing beside it that counts.
bool is_reference(const Json& schema) {
  if (!schema.contains("$ref")) return false;
  for (const auto& [name, ignored] : schema.items())
    if (name != "$ref" && name != "$defs" && name != "definitions" && !is_annotation(name)) return false;
  return true;
}

int32_t count(const Json& schema, const char* name, int32_t fallback) {
  return schema.contains(name) ? schema[name].get<int32_t>() : fallback;
}

}  // namespace

void SchemaRules::fail(const std::string& path, const Status& status) {
  if (status_.is_ok()) status_ = invalid("schema: {}: {}", path, status.message());
}

Result<int32_t> SchemaRules::add(const Json& schema, Writing writing) {
  status_ = Status::ok();
  const int32_t rule = builder_->add_rule("schema");
  add_value(schema, {builder_->rule(rule).begin, builder_->rule(rule).end, "#", writing});
  while (!todo_.empty() && status_.is_ok() && !builder_->budget().spent()) {
    const auto [key, number] = todo_.back();
    todo_.pop_back();
    const auto target = resolve_reference(*root_, key.first);
    if (!target.is_ok()) {
      fail(key.first, target.status());
      break;
    }
    add_value(**target, {builder_->rule(number).begin, builder_->rule(number).end, key.first, key.second});
  }
  if (!status_.is_ok()) return status_;
  LATHE_RETURN_IF_ERROR(builder_->budget().status());
  return rule;
}

void SchemaRules::add_reference(const std::string& reference, const Place& place) {
  const auto [at, is_new] = references_.try_emplace({reference, place.writing}, -1);
  if (is_new) {
    at->second = builder_->add_rule(reference);
    todo_.push_back(*at);
  }
  builder_->call(place.from, at->second, place.to);
}

void SchemaRules::add_any(const Place& place) {
  builder_->call(place.from, place.writing == Writing::kPlain ? plain_text_ : json_->any(), place.to);
}

void SchemaRules::add_value(const Json& schema, const Place& place) {
  if (!status_.is_ok() || !builder_->budget().spend(200)) return;
  if (schema == false) return;  // nothing
  if (!schema.is_object()) return add_any(place);
  if (is_reference(schema)) return add_reference(schema["$ref"], place);
  const auto flat = flatten_schema(*root_, schema);
  if (!flat.is_ok()) return fail(place.path, flat.status());
  add_flat(*flat, place);
}

void SchemaRules::add_flat(const Json& schema, const Place& place) {
  if (schema == false) return;
  if (!schema.is_object() || schema.empty()) return add_any(place);
  const bool any_of = schema.contains("anyOf"), one_of = schema.contains("oneOf");
  if (any_of && one_of) return fail(place.path, invalid("anyOf beside oneOf isn't supported"));
  if (any_of || one_of) return add_branches(schema, any_of ? "anyOf" : "oneOf", place);
  if (schema.contains("enum")) return add_constants(schema, place);
  const std::vector<std::string> types = types_of(schema);
  if (types.empty()) return add_any(place);
  for (const std::string& type : types) add_type(type, schema, place);
}

void SchemaRules::add_branches(const Json& schema, const char* keyword, const Place& place) {
  Json rest = schema;
  rest.erase(keyword);
  std::vector<Json> branches;
  const Json& all = schema[keyword];
  // References stay references, so that recursion ends; what is beside them, or must be told apart, is looked into.
  const bool plain = rest.empty() && keyword == std::string_view("anyOf");
  for (size_t i = 0; i < all.size(); ++i) {
    Place inner = place;
    inner.path += fmt::format("/{}/{}", keyword, i);
    if (plain) {
      add_value(all[i], inner);
      continue;
    }
    auto flat = flatten_schema(*root_, all[i]);
    if (flat.is_ok()) flat = merge_schemas(rest, *flat);
    if (!flat.is_ok()) return fail(inner.path, flat.status());
    if (keyword == std::string_view("oneOf"))
      for (const Json& other : branches)
        if (!are_disjoint(*root_, *flat, other))
          return fail(inner.path,
                      invalid("oneOf needs branches that can be told apart: by type, by a constant property "
                              "that both require, or by a required property that the other, closed, lacks"));
    branches.push_back(*flat);
    if (rest.empty())
      add_value(all[i], inner);
    else
      add_flat(*flat, inner);
  }
}

void SchemaRules::add_constants(const Json& schema, const Place& place) {
  for (const auto& [name, value] : schema.items())
    if (name != "enum" && name != "type")
      return fail(place.path, invalid("'{}' beside enum or const isn't supported", name));
  const std::vector<std::string> types = types_of(schema);
  for (const Json& value : schema["enum"]) {
    const bool fits =
        types.empty() || std::any_of(types.begin(), types.end(), [&](const auto& t) { return has_type(value, t); });
    if (!fits) continue;
    if (value.is_string() && place.writing == Writing::kPlain)
      builder_->text(place.from, value.get_ref<const std::string&>(), place.to);
    else
      builder_->empty(json_->after_value(place.from, value), place.to);
  }
}

void SchemaRules::add_type(const std::string& type, const Json& schema, const Place& place) {
  if (type == "string") return add_string(schema, place);
  Place inner = place;
  inner.writing = Writing::kJsonString;
  if (type == "object") return add_object(schema, inner);
  if (type == "array") return add_array(schema, inner);
  if (type == "integer" || type == "number") return add_number(schema, inner, type == "integer");
  if (type == "null") return builder_->text(place.from, "null", place.to);
  builder_->text(place.from, "true", place.to);
  builder_->text(place.from, "false", place.to);
}

// ---- objects: "{" pairs "}" with commas between pairs

std::vector<SchemaRules::Property> SchemaRules::properties_of(const Json& schema, const std::string& path) {
  std::vector<Property> all;
  std::vector<std::string> required;
  if (schema.contains("required"))
    for (const Json& name : schema["required"]) required.push_back(name.get<std::string>());
  auto is_required = [&](const std::string& name) {
    return std::find(required.begin(), required.end(), name) != required.end();
  };
  const bool declares = schema.contains("properties");
  if (declares)
    for (const auto& [name, value] : schema["properties"].items()) all.push_back({name, value, is_required(name)});
  const Json others = schema.value("additionalProperties", Json(true));
  for (const std::string& name : required) {
    if (declares && schema["properties"].contains(name)) continue;
    if (std::any_of(all.begin(), all.end(), [&](const Property& p) { return p.name == name; })) continue;
    if (schema.contains("patternProperties")) {
      fail(path, invalid("'{}' is required but only patternProperties may declare it: declare it in properties", name));
    } else if (others == false) {
      fail(path, invalid("'{}' is required, but not declared, and additionalProperties is false", name));
    }
    all.push_back({name, others, true});
  }
  return all;
}

// Rules of keys that aren't declared, each with its values' schema.
std::vector<std::pair<int32_t, Json>> SchemaRules::other_properties(const Json& schema,
                                                                    const std::vector<Property>& declared,
                                                                    const std::string& path) {
  std::vector<std::pair<int32_t, Json>> all;
  auto names = [&] {
    const int32_t rule = builder_->add_rule("declared names");
    for (const Property& p : declared)
      builder_->text(builder_->rule(rule).begin, json_quoted(p.name), builder_->rule(rule).end);
    return rule;
  };
  if (schema.contains("patternProperties")) {
    for (const auto& [pattern, value] : schema["patternProperties"].items()) {
      const int32_t keys = string_rule(pattern, RegexMatch::kSomewhere, Writing::kJsonString, false,
                                       path + "/patternProperties/" + pattern);
      if (!status_.is_ok()) return all;
      if (!declared.empty() && builder_->has_text(builder_->both(keys, names())))
        fail(path, invalid("patternProperties '{}' matches a declared property", pattern));
      for (const auto& [other, ignored] : all)
        if (builder_->has_text(builder_->both(keys, other)))
          fail(path, invalid("patternProperties '{}' may match what another pattern matches", pattern));
      all.push_back({keys, value});
    }
  }
  const bool closed = schema.contains("properties") || schema.contains("patternProperties");
  const Json others = schema.value("additionalProperties", Json(!closed));
  if (others == false) return all;
  int32_t keys = json_->string();
  if (!declared.empty()) keys = builder_->without(json_->written_string(), names());
  if (!all.empty() && declared.empty()) keys = json_->written_string();
  for (const auto& [pattern, ignored] : all) keys = builder_->without(keys, pattern);
  all.push_back({keys, others});
  return all;
}

void SchemaRules::add_object(const Json& schema, const Place& place) {
  if (!has_any(schema, kObjectWords)) return builder_->call(place.from, json_->object(), place.to);
  const std::vector<Property> declared = properties_of(schema, place.path);
  AutomatonBuilder& b = *builder_;
  // Before property i, with none behind us or with some and a comma; the pair itself is one for both.
  int32_t first = json_->after_space(b.text(place.from, "{")), later = b.add_state();
  auto after_pair = [&](int32_t pair, int32_t value_from, const Json& value, const std::string& name) {
    b.empty(first, pair);
    b.empty(later, pair);
    const int32_t end = b.add_state();
    add_value(value, {value_from, end, place.path + "/" + name});
    return end;
  };
  std::vector<int32_t> ends;  // of pairs behind which the object may close, if nothing required follows
  std::vector<std::pair<int32_t, int32_t>> commas;
  for (const Property& p : declared) {
    if (!status_.is_ok() || b.budget().spent()) return;
    const int32_t pair = b.add_state();
    const int32_t value = json_->after_space(b.text(pair, json_quoted(p.name) + ":"));
    const int32_t end = after_pair(pair, value, p.schema, "properties/" + p.name);
    const int32_t next_first = b.add_state(), next_later = b.add_state();
    b.empty(json_->after_space(b.text(end, ",")), next_later);
    if (p.required) {
      ends.clear();
    } else {
      b.empty(first, next_first);
      b.empty(later, next_later);
    }
    first = next_first;  // not to be reached behind something required
    later = next_later;
    ends.push_back(end);
  }
  const bool may_be_empty =
      std::none_of(declared.begin(), declared.end(), [](const Property& p) { return p.required; });
  if (may_be_empty) b.text(first, "}", place.to);
  for (const auto& [keys, value] : other_properties(schema, declared, place.path)) {
    if (!status_.is_ok() || b.budget().spent()) return;
    const int32_t pair = b.add_state(), colon = b.add_state();
    b.call(pair, keys, colon);
    const int32_t end = after_pair(pair, json_->after_space(b.text(colon, ":")), value, "additionalProperties");
    b.empty(json_->after_space(b.text(end, ",")), later);
    ends.push_back(end);
  }
  const int32_t close = b.add_state();
  for (const int32_t end : ends) b.empty(end, close);
  b.text(json_->after_space(close), "}", place.to);
}

// ---- arrays

void SchemaRules::add_array(const Json& schema, const Place& place) {
  if (!has_any(schema, kArrayWords)) return builder_->call(place.from, json_->array(), place.to);
  AutomatonBuilder& b = *builder_;
  const Json prefix = schema.value("prefixItems", Json::array());
  const Json items = schema.value("items", Json(true));
  const int32_t min = count(schema, "minItems", 0), given = static_cast<int32_t>(prefix.size());
  int32_t max = count(schema, "maxItems", kUnbounded);
  if (items == false) max = std::min(max, given);
  // Items behind the prefix are one rule, however often they come.
  int32_t item_rule = -1;
  if (max > given) {
    item_rule = b.add_rule("item");
    add_value(items, {b.rule(item_rule).begin, b.rule(item_rule).end, place.path + "/items"});
  }
  auto add_item = [&](int32_t from, int32_t i) {
    const int32_t end = b.add_state();
    if (i < given)
      add_value(prefix[i], {from, end, place.path + fmt::format("/prefixItems/{}", i)});
    else
      b.call(from, item_rule, end);
    return end;
  };
  const int32_t open = json_->after_space(b.text(place.from, "["));
  const int32_t close = b.add_state();
  b.text(json_->after_space(close), "]", place.to);
  if (min == 0) b.text(open, "]", place.to);
  if (max == 0) return;
  int32_t end = add_item(open, 0);
  const int32_t single = std::max({min, given, 1});  // items that are counted one by one, if there's no limit
  for (int32_t n = 1; !b.budget().spent() && status_.is_ok(); ++n) {
    if (n >= min) b.empty(end, close);
    if (n == max) return;
    const int32_t next = json_->after_space(b.text(end, ","));
    if (max == kUnbounded && n == single) {
      b.call(next, item_rule, end);
      return;
    }
    end = add_item(next, n);
  }
}

// ---- strings

// Strings that match; with their quotes, if they are JSON. alone: nothing else must hold, so that it may call and
// count.
int32_t SchemaRules::string_rule(const std::string& pattern, RegexMatch match, Writing writing, bool alone,
                                 const std::string& path) {
  const std::string key = fmt::format("{}{}{}", static_cast<int>(match), alone, pattern);
  const auto [at, is_new] = strings_.try_emplace({key, writing}, -1);
  if (!is_new) return at->second;
  at->second = builder_->add_rule("string");
  const auto e = parse_regex(pattern, match);
  if (!e.is_ok()) {
    fail(path, e.status());
    return at->second;
  }
  const auto rule = builder_->rule(at->second);
  const char* quote = writing == Writing::kJsonString ? "\"" : "";
  const int32_t begin = builder_->text(rule.begin, quote), end = builder_->add_state();
  (alone ? add_counting : add_expression)(*builder_, begin, *e, end, writing);
  builder_->text(end, quote, rule.end);
  return at->second;
}

void SchemaRules::add_string(const Json& schema, const Place& place) {
  const int32_t min = count(schema, "minLength", 0), max = count(schema, "maxLength", kUnbounded);
  if (max < min) return;
  const bool plain = place.writing == Writing::kPlain;
  const bool counted = min > 0 || max != kUnbounded;
  Json patterns = schema.value("pattern", Json::array());
  if (!patterns.is_array()) patterns = Json::array({patterns});
  const bool alone = patterns.size() + schema.contains("format") + counted + plain == 1;
  std::vector<int32_t> rules;  // all of them must hold
  for (const Json& p : patterns)
    rules.push_back(string_rule(p, RegexMatch::kSomewhere, place.writing, alone, place.path + "/pattern"));
  if (schema.contains("format")) {
    const std::string format = schema["format"];
    const auto pattern = pattern_of_format(format);
    if (!pattern)
      return fail(place.path, invalid("format '{}' isn't supported; there are {}", format, known_formats()));
    rules.push_back(
        string_rule(std::string(*pattern), RegexMatch::kWhole, place.writing, alone, place.path + "/format"));
  }
  if (rules.empty() && !plain) return builder_->call(place.from, json_->string(), place.to, min, max);
  if (counted) {
    const Expression any = Expression::of(CharacterSet::all());
    const Expression e = Expression::repeat(any, min, max == kUnbounded ? -1 : max);
    const int32_t lengths = builder_->add_rule("lengths");
    const auto rule = builder_->rule(lengths);
    const int32_t begin = plain ? rule.begin : builder_->text(rule.begin, "\""), end = builder_->add_state();
    add_expression(*builder_, begin, e, end, place.writing);
    builder_->text(end, plain ? "" : "\"", rule.end);
    rules.push_back(lengths);
  }
  if (plain) rules.push_back(plain_text_);
  if (!status_.is_ok()) return;
  int32_t all = rules[0];
  for (size_t i = 1; i < rules.size(); ++i) all = builder_->both(all, rules[i]);
  builder_->call(place.from, all, place.to);
}

// ---- numbers

void SchemaRules::add_number(const Json& schema, const Place& place, bool integer) {
  if (!has_any(schema, kNumberWords))
    return builder_->call(place.from, integer ? json_->integer() : json_->number(), place.to);
  std::optional<Decimal> low, high;
  for (const char* word : kNumberWords) {
    if (!schema.contains(word)) continue;
    const Json& v = schema[word];
    auto bound = Decimal::parse(v.is_number_float() ? fmt::format("{}", v.get<double>()) : v.dump());
    if (!bound) return fail(place.path, invalid("'{}' of {} is out of the range that is supported", word, v.dump()));
    const bool is_low = std::string_view(word).ends_with("inimum");
    bound->inclusive = !std::string_view(word).starts_with("exclusive");
    auto& kept = is_low ? low : high;
    const char* other = is_low ? "minimum" : "maximum";
    // Of minimum and exclusiveMinimum the tighter one; equal, the exclusive one.
    if (!kept || (is_low ? schema[other] <= v : schema[other] >= v)) kept = bound;
  }
  if (!integer) return add_numbers(*builder_, place.from, low, high, place.to);
  auto whole = [](const std::optional<Decimal>& d, bool is_low) -> std::optional<int64_t> {
    if (!d) return std::nullopt;
    int64_t n = std::stoll(d->whole);
    if (d->negative) n = -n;
    const bool cut = !d->fraction.empty();
    if (is_low) return cut ? n + (d->negative ? 0 : 1) : n + (d->inclusive ? 0 : 1);
    return cut ? n - (d->negative ? 1 : 0) : n - (d->inclusive ? 0 : 1);
  };
  const auto l = whole(low, true), h = whole(high, false);
  if (l && h && *l > *h) return;
  add_integers(*builder_, place.from, l, h, place.to);
}

}  // namespace lathe
