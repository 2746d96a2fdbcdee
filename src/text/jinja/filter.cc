#include "text/jinja/filter.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "text/jinja/characters.h"
#include "text/jinja/machine.h"
#include "text/jinja/operators.h"
#include "text/jinja/parameters.h"
#include "text/jinja/python_text.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/text_operations.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {

// -- text
template <std::string (*kChange)(std::string_view)>
Value changed(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("a filter on text", arguments, {});
  const std::shared_ptr<const Text> t = m.str(input);
  return m.text(kChange(t->view()), t->origin());
}

// Words as the filter (not the method) sees them: what stands between white space, hyphens and opening brackets.
std::string title(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const auto ends = [&](size_t i) {
      return is_space(utf8_step(s, i).character) || std::string_view("-({[<").find(s[i]) != std::string_view::npos;
    };
    size_t end = at;
    const bool separator = ends(at);
    while (end < s.size() && ends(end) == separator) end += utf8_step(s, end).bytes;
    const std::string_view word = s.substr(at, end - at);
    if (separator) {
      out += word;
    } else {
      const size_t first = utf8_step(word, 0).bytes;
      out += to_upper(word.substr(0, first)) + to_lower(word.substr(first));
    }
    at = end;
  }
  return out;
}

std::string escaped(std::string_view s) {
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value string(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("string", arguments, {});
  return m.str(input);
}

Value trim(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("trim", arguments, {"chars"});
  const std::shared_ptr<const Text> t = m.str(input);
  m.charge(t->size());
  return stripped(*t, p.has(0) ? &p.text(0) : nullptr, Side::kBoth);
}

Value replace(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return replaced(m, *m.str(input), m.str(*p.get(0))->view(), *m.str(*p.get(1)), p.has(2) ? p.integer(2, -1) : -1);
}

Value indent(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  if (!input.text()) fail("indent needs a str, not {}", input.type_name());
  Text margin;
  if (p.get(0) && p.get(0)->text()) {
    margin = *p.get(0)->text();
  } else {
    const int64_t width = std::max<int64_t>(0, p.integer(0, 4));
    m.charge(static_cast<size_t>(width));
    margin = Text(std::string(static_cast<size_t>(width), ' '), Origin::kTemplate);
  }
  TextBuilder whole;
  whole.append(*input.text());
  whole.append("\n", Origin::kTemplate);
  const std::vector<Value> lines = split_lines(m, whole.take(), false);
  TextBuilder out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    if (i > 0) out.append("\n", Origin::kTemplate);
    if (i == 0 ? p.truth(1, false) : p.truth(2, false) || line.size() > 0) {
      m.charge(margin.size());
      out.append(margin);
    }
    out.append(line);
  }
  return m.text(out);
}

Value wordcount(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("wordcount", arguments, {});
  const std::shared_ptr<const Text> t = m.str(input);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < t->size(); at += utf8_step(t->view(), at).bytes) {
    const char32_t c = utf8_step(t->view(), at).character;
    const bool word = is_letter(c) || is_numeric(c) || c == '_';
    words += word && !inside;
    inside = word;
  }
  return words;
}

// -- numbers
std::optional<double> float_of(const Value& v) {
  need_defined(v);
  double d = 0;
  if (as_double(v, d)) return d;
  if (!v.text()) return std::nullopt;
  std::string_view s = strip_begin(strip_end(v.text()->view()));
  if (s.starts_with('+') && s.size() > 1 && s[1] != '-' && s[1] != '+') s.remove_prefix(1);
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), d);
  if (s.empty() || end != s.data() + s.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(s).c_str(), nullptr);
  return error == std::errc() ? std::optional(d) : std::nullopt;
}

Value integer_of(double d) {
  if (std::isnan(d)) fail("cannot convert float NaN to integer");
  if (std::isinf(d)) fail("cannot convert float infinity to integer");
  if (!(d > -9223372036854775808.0 && d < 9223372036854775808.0)) fail("an integer is too large");
  return static_cast<int64_t>(d);
}

std::optional<int64_t> parsed_integer(std::string_view s, int base) {
  s = strip_begin(strip_end(s));
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  constexpr std::pair<const char*, int> kPrefixes[] = {{"0x", 16}, {"0o", 8}, {"0b", 2}};
  for (const auto& [prefix, b] : kPrefixes)
    if (base == b && s.size() > 2 && to_lower(s.substr(0, 2)) == prefix) s.remove_prefix(2);
  if (s.empty() || s.starts_with('_') || s.starts_with('-') || s.ends_with('_') ||
      s.find("__") != std::string_view::npos)
    return std::nullopt;
  std::string digits(s);
  std::erase(digits, '_');
  if (negative) digits.insert(0, "-");
  int64_t i = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), i, base);
  if (error == std::errc::result_out_of_range) fail("an integer is too large");
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(i) : std::nullopt;
}

Value to_int(Machine&, const Value& input, Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  const Value fallback = p.get(0) ? *p.get(0) : Value(int64_t{0});
  const int64_t base = p.integer(1, 10);
  if (base < 2 || base > 36) fail("int() base must be from 2 to 36");
  if (input.is_integer()) return input;
  if (const Text* t = input.text())
    if (const std::optional<int64_t> i = parsed_integer(t->view(), static_cast<int>(base))) return *i;
  const std::optional<double> d = float_of(input);
  if (!d || (input.text() && std::isnan(*d))) return fallback;
  return integer_of(*d);
}

Value to_float(Machine&, const Value& input, Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  if (const std::optional<double> d = float_of(input)) return *d;
  return p.get(0) ? *p.get(0) : Value(0.0);
}

Value abs(Machine&, const Value& input, Arguments& arguments) {
  Parameters("abs", arguments, {});
  if (const double* d = input.get<double>()) return std::fabs(*d);
  double d = 0;
  if (!as_double(input, d)) fail("bad operand type for abs(): '{}'", input.type_name());
  return d < 0 ? negated(input) : positive(input);
}

Value round(Machine&, const Value& input, Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const int64_t precision = p.integer(0, 0);
  const std::string_view method = p.has(1) ? p.text(1).view() : "common";
  if (std::abs(precision) > 300) fail("round: precision must be within 300");
  double d = 0;
  if (!as_double(input, d)) fail("round needs a number, not {}", input.type_name());
  if (method == "common") {
    if (!input.is<double>() && precision >= 0) return positive(input);
    if (!std::isfinite(d)) return d;
    if (precision >= 0)
      return std::strtod(fmt::format("{:.{}f}", d, precision).c_str(), nullptr);  // exact digits, ties to even
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::nearbyint(d / scale) * scale;
    return input.is<double>() ? Value(rounded) : integer_of(rounded);
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale);
  return scaled / scale;
}

// -- anything
Value fallback(Machine&, const Value& input, Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  if (!input.is_undefined() && !(p.truth(1, false) && !input.truthy())) return input;
  return p.get(0) ? *p.get(0) : Value(Text());
}

Value attr(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("attr", arguments, {"name"}, 1);
  const Value found = m.attribute(input, std::string(p.text(0).view()));
  // Unlike `.`, this filter doesn't fall back to a mapping's items.
  return input.dict() && !found.callable() ? Value::undefined("no such attribute") : found;
}

Value tojson(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = p.truth(0, false);
  style.sorted = p.truth(3, false);
  if (p.has(1)) {
    style.indented = true;
    style.between = ",";
    if (p.get(1)->text()) {
      style.indent = p.text(1).view();
    } else {
      const int64_t width = std::max<int64_t>(0, p.integer(1, 0));
      if (width > 1000) fail("tojson(): indent is larger than 1000");
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (p.has(2)) {
    const std::vector<Value> pair = m.items_of(*p.get(2));
    if (pair.size() != 2 || !pair[0].text() || !pair[1].text()) fail("tojson(): separators must be a pair of str");
    style.between = pair[0].text()->view();
    style.colon = pair[1].text()->view();
  }
  return m.text(to_json(m, input, style), Origin::kData);
}

constexpr FilterEntry kFilters[] = {
    {"abs", abs},
    {"attr", attr},
    {"capitalize", changed<to_capitalized>},
    {"count", filter_length},
    {"d", fallback},
    {"default", fallback},
    {"dictsort", filter_dictsort},
    {"e", changed<escaped>},
    {"escape", changed<escaped>},
    {"first", filter_first},
    {"float", to_float},
    {"indent", indent},
    {"int", to_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", changed<to_lower>},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", replace},
    {"reverse", filter_reverse},
    {"round", round},
    {"safe", string},  // nothing is escaped here, so nothing needs to be spared from it
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"string", string},
    {"sum", filter_sum},
    {"title", changed<title>},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", filter_unique},
    {"upper", changed<to_upper>},
    {"wordcount", wordcount},
};

}  // namespace

const FilterEntry* find_filter(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const FilterEntry& e) { return e.name == name; });
  return at == std::end(kFilters) ? nullptr : at;
}

}  // namespace lathe::jinja
