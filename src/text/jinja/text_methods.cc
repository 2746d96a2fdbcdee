#include <algorithm>
#include <iterator>

#include "text/jinja/characters.h"
#include "text/jinja/machine.h"
#include "text/jinja/method.h"
#include "text/jinja/parameters.h"
#include "text/jinja/text_operations.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {

const Text& self_of(const Value& self) { return *self.text(); }

// Case and such: bytes change, so the whole has one origin.
template <std::string (*kChange)(std::string_view)>
Value changed(Machine& m, const Value& self, Arguments& arguments) {
  Parameters("a method of str", arguments, {});
  return m.text(kChange(self_of(self).view()), self_of(self).origin());
}

std::string title(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {  // runs of letters, each capitalized
    size_t end = at;
    while (end < s.size() && is_letter(utf8_step(s, end).character)) end += utf8_step(s, end).bytes;
    if (end == at) {
      end += utf8_step(s, at).bytes;
      out += s.substr(at, end - at);
    } else {
      out += to_capitalized(s.substr(at, end - at));
    }
    at = end;
  }
  return out;
}

template <Side kSide>
Value strip(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  m.charge(self_of(self).size());
  return stripped(self_of(self), p.has(0) ? &p.text(0) : nullptr, kSide);
}

template <Side kSide>
Value split_method(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  return m.list(split(m, self_of(self), p.has(0) ? &p.text(0) : nullptr, p.integer(1, -1), kSide));
}

Value splitlines(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"});
  return m.list(split_lines(m, self_of(self), p.truth(0, false)));
}

template <bool kEnd>
Value has_affix(Machine&, const Value& self, Arguments& arguments) {
  const Parameters p(kEnd ? "endswith" : "startswith", arguments, {kEnd ? "suffix" : "prefix", "start", "end"}, 1);
  Text text = self_of(self);
  if (p.has(1) || p.has(2)) {
    const std::string_view s = text.view();  // bounds count characters, as a slice's do
    const int64_t length = static_cast<int64_t>(utf8_length(s));
    const auto clamp = [&](int64_t i) { return std::max<int64_t>(0, std::min(i < 0 ? i + length : i, length)); };
    const size_t begin = offset_of(s, clamp(p.integer(1, 0))),
                 end = offset_of(s, clamp(p.has(2) ? p.integer(2, 0) : length));
    text = part(text, begin, end);
  }
  const auto matches = [&](const Value& affix) {
    if (!affix.text())
      fail("{}() needs a str or a tuple of str, not {}", kEnd ? "endswith" : "startswith", affix.type_name());
    return kEnd ? text.view().ends_with(affix.text()->view()) : text.view().starts_with(affix.text()->view());
  };
  if (const List* l = p.get(0)->list(); l && l->flavor == List::Flavor::kTuple)
    return std::any_of(l->items.begin(), l->items.end(), matches);
  return matches(*p.get(0));
}

// Index in characters of the first or last occurrence, or -1.
template <bool kLast, bool kMustBe>
Value find(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p(kMustBe ? "index" : "find", arguments, {"sub"}, 1);
  const std::string_view s = self_of(self).view();
  m.charge(s.size() / 8);
  const size_t at = kLast ? s.rfind(p.text(0).view()) : s.find(p.text(0).view());
  if (at == std::string_view::npos && kMustBe) fail("substring not found");
  return at == std::string_view::npos ? int64_t{-1} : static_cast<int64_t>(utf8_length(s.substr(0, at)));
}

Value count(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("count", arguments, {"sub"}, 1);
  const std::string_view s = self_of(self).view(), sub = p.text(0).view();
  m.charge(s.size() / 8);
  if (sub.empty()) return static_cast<int64_t>(utf8_length(s)) + 1;
  int64_t n = 0;
  for (size_t at = s.find(sub); at != std::string_view::npos; at = s.find(sub, at + sub.size())) ++n;
  return n;
}

Value replace(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return replaced(m, self_of(self), p.text(0).view(), p.text(1), p.integer(2, -1));
}

Value join(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  const std::vector<Value> items = m.items_of(*p.get(0));
  for (size_t i = 0; i < items.size(); ++i)
    if (!items[i].text()) fail("sequence item {}: expected str instance, {} found", i, items[i].type_name());
  return joined(m, self_of(self), items);
}

template <bool kLast>
Value partition(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const Text& t = self_of(self);
  const std::string_view separator = p.text(0).view();
  if (separator.empty()) fail("empty separator");
  m.charge(t.size());
  const size_t at = kLast ? t.view().rfind(separator) : t.view().find(separator);
  if (at == std::string_view::npos) {
    std::vector<Value> alone = {Text(), Text(), Text()};
    alone[kLast ? 2 : 0] = t;
    return m.list(std::move(alone), List::Flavor::kTuple);
  }
  const size_t end = at + separator.size();
  return m.list({part(t, 0, at), part(t, at, end), part(t, end, t.size())}, List::Flavor::kTuple);
}

template <bool kEnd>
Value remove_affix(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p(kEnd ? "removesuffix" : "removeprefix", arguments, {kEnd ? "suffix" : "prefix"}, 1);
  const Text& t = self_of(self);
  const std::string_view affix = p.text(0).view();
  m.charge(t.size());
  if (kEnd ? !t.view().ends_with(affix) : !t.view().starts_with(affix)) return self;
  return kEnd ? part(t, 0, t.size() - affix.size()) : part(t, affix.size(), t.size());
}

template <bool (*kHolds)(char32_t)>
Value all(Machine&, const Value& self, Arguments& arguments) {
  Parameters("a method of str", arguments, {});
  return every(self_of(self).view(), kHolds);
}
bool letter_or_number(char32_t c) { return is_letter(c) || is_numeric(c); }

template <bool kUpper>
Value in_case(Machine&, const Value& self, Arguments& arguments) {
  Parameters("a method of str", arguments, {});
  return has_case(self_of(self).view(), kUpper);
}

Value zfill(Machine& m, const Value& self, Arguments& arguments) {
  const Parameters p("zfill", arguments, {"width"}, 1);
  const Text& t = self_of(self);
  const int64_t missing = p.integer(0, 0) - static_cast<int64_t>(utf8_length(t.view()));
  if (missing <= 0) return self;
  m.charge(static_cast<size_t>(missing));
  const size_t sign = t.view().starts_with('-') || t.view().starts_with('+');
  TextBuilder out;
  out.append(t, 0, sign);
  out.append(std::string(static_cast<size_t>(missing), '0'), Origin::kTemplate);
  out.append(t, sign, t.size() - sign);
  return m.text(out);
}

struct Entry {
  std::string_view name;
  Method method;
};
constexpr Entry kMethods[] = {
    {"capitalize", changed<to_capitalized>},
    {"count", count},
    {"endswith", has_affix<true>},
    {"find", find<false, false>},
    {"index", find<false, true>},
    {"isalnum", all<letter_or_number>},
    {"isalpha", all<is_letter>},
    {"isdecimal", all<is_decimal>},
    {"isdigit", all<is_digit_like>},
    {"islower", in_case<false>},
    {"isnumeric", all<is_numeric>},
    {"isspace", all<is_space>},
    {"isupper", in_case<true>},
    {"join", join},
    {"lower", changed<to_lower>},
    {"lstrip", strip<Side::kLeft>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<Side::kRight>},
    {"rstrip", strip<Side::kRight>},
    {"split", split_method<Side::kLeft>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", strip<Side::kBoth>},
    {"title", changed<title>},
    {"upper", changed<to_upper>},
    {"zfill", zfill},
};

}  // namespace

Method find_text_method(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Entry& e) { return e.name == name; });
  return at == std::end(kMethods) ? nullptr : at->method;
}

}  // namespace lathe::jinja
