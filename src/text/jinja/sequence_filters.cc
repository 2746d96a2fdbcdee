#include "text/jinja/sequence_filters.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/filter.h"
#include "text/jinja/machine.h"
#include "text/jinja/operators.h"
#include "text/jinja/parameters.h"
#include "text/jinja/test.h"
#include "text/jinja/text_operations.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {

// "a.b.0" by the rules of object[key], one part after the other.
Value attribute_path(Machine& m, Value value, const Value& path) {
  if (path.is_none()) return value;
  if (!path.text()) return m.item(value, path);
  std::string_view rest = path.text()->view();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const bool index = !name.empty() && name.size() < 19 &&
                       std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = m.item(value,
                   index ? Value(int64_t{std::stoll(std::string(name))}) : Value(std::string(name), Origin::kTemplate));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

// What sort, unique, min and max compare: an attribute, in lower case unless told otherwise.
Value sort_key(Machine& m, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute ? attribute_path(m, item, *attribute) : item;
  if (case_sensitive || !key.text()) return key;
  return m.text(to_lower(key.text()->view()), key.text()->origin());
}

using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

// Python's sort is stable, in reverse, too. Comparing fails for what has no order, which std::sort's contract forbids
// to happen halfway: so a merge of our own.
void sort_by_key(Machine& m, Keyed& items, bool reverse) {
  m.charge(items.size() * 64);
  Keyed other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      size_t i = begin, j = std::min(begin + width, items.size());
      const size_t middle = j, end = std::min(begin + 2 * width, items.size());
      for (size_t k = begin; k < end; ++k) {
        const bool second =
            i == middle ||
            (j < end && (reverse ? less(items[i].first, items[j].first) : less(items[j].first, items[i].first)));
        other[k] = std::move(items[second ? j++ : i++]);
      }
    }
    items.swap(other);
  }
}

Value extreme(Machine& m, const Value& input, Arguments& arguments, bool largest) {
  const Parameters p(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> items = m.items_of(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(m, items[0], p.get(1), p.truth(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(m, items[i], p.get(1), p.truth(0, false));
    if (largest ? !less(best_key, key) : !less(key, best_key)) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

// The arguments behind the first `count`.
Arguments rest_of(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + std::min(count, rest.positional.size()));
  return rest;
}

Value picked(Machine& m, const Value& input, Arguments& arguments, bool by_attribute, bool keep) {
  const size_t named = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) fail("the name of an attribute is missing");
  const bool tests = arguments.positional.size() > named;
  const std::string test(tests ? m.str(arguments.positional[named])->view() : "");
  const TestEntry* entry = tests ? find_test(test) : nullptr;
  return m.iterator([&](std::vector<Value>& kept) {
    if (!input.truthy()) return;
    for (Value& item : m.items_of(input)) {
      const Value subject = by_attribute ? attribute_path(m, item, arguments.positional[0]) : item;
      bool holds = subject.truthy();
      if (tests) {
        Arguments rest = rest_of(arguments, named + 1);
        holds = m.test(test, entry, subject, rest);
      }
      if (holds == keep) kept.push_back(std::move(item));
    }
  });
}

}  // namespace

Value filter_dictsort(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.dict()) fail("dictsort needs a mapping, not {}", input.type_name());
  const std::string_view by = p.has(1) ? p.text(1).view() : "key";
  if (by != "key" && by != "value") fail("dictsort can sort by \"key\" or \"value\"");
  Keyed keyed;
  for (const auto& [k, v] : input.dict()->entries)
    keyed.emplace_back(sort_key(m, by == "key" ? k : v, nullptr, p.truth(0, false)),
                       m.list({k, v}, List::Flavor::kTuple));
  sort_by_key(m, keyed, p.truth(2, false));
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return m.list(std::move(items));
}

Value filter_first(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("first", arguments, {});
  if (Iterator* i = input.iterator(); i && i->next < i->items.size()) return i->items[i->next++];  // the rest stays
  if (const List* l = input.list(); l && !l->items.empty()) return l->items[0];
  const std::vector<Value> items = m.items_of(input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items[0];
}

Value filter_last(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("last", arguments, {});
  if (input.iterator()) fail("'generator' object is not reversible");
  if (const List* l = input.list(); l && !l->items.empty()) return l->items.back();
  const std::vector<Value> items = m.items_of(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_items(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("items", arguments, {});
  return m.iterator([&](std::vector<Value>& pairs) {
    if (input.is_undefined()) return;
    if (!input.dict()) fail("Can only get item pairs from a mapping.");
    for (const auto& [k, v] : input.dict()->entries) pairs.push_back(m.list({k, v}, List::Flavor::kTuple));
  });
}

Value filter_join(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  std::vector<Value> items = m.items_of(input);
  if (p.has(1))
    for (Value& item : items) item = attribute_path(m, std::move(item), *p.get(1));
  return joined(m, p.get(0) ? *m.str(*p.get(0)) : Text(), items);
}

Value filter_length(Machine&, const Value& input, Arguments& arguments) {
  Parameters("length", arguments, {});
  if (const Text* t = input.text()) return static_cast<int64_t>(utf8_length(t->view()));
  if (const List* l = input.list()) return static_cast<int64_t>(l->items.size());
  if (const Dict* d = input.dict()) return static_cast<int64_t>(d->entries.size());
  if (input.is_undefined()) return int64_t{0};
  fail("object of type '{}' has no len()", input.type_name());
}

Value filter_list(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("list", arguments, {});
  return m.list(m.items_of(input));
}

Value filter_map(Machine& m, const Value& input, Arguments& arguments) {
  return m.iterator([&](std::vector<Value>& items) {
    if (!input.truthy()) return;
    if (arguments.positional.empty()) {
      const Parameters p("map", arguments, {"attribute", "default"});
      if (!p.get(0)) fail("map needs a filter or an attribute");
      for (Value& item : m.items_of(input)) {
        items.push_back(attribute_path(m, std::move(item), *p.get(0)));
        if (items.back().is_undefined() && p.has(1)) items.back() = *p.get(1);
      }
      return;
    }
    const std::string name(m.str(arguments.positional[0])->view());
    const FilterEntry* entry = find_filter(name);
    for (const Value& item : m.items_of(input)) {
      Arguments rest = rest_of(arguments, 1);
      items.push_back(m.filter(name, entry, item, rest));
    }
  });
}

Value filter_max(Machine& m, const Value& input, Arguments& arguments) { return extreme(m, input, arguments, true); }
Value filter_min(Machine& m, const Value& input, Arguments& arguments) { return extreme(m, input, arguments, false); }
Value filter_reject(Machine& m, const Value& input, Arguments& arguments) {
  return picked(m, input, arguments, false, false);
}
Value filter_rejectattr(Machine& m, const Value& input, Arguments& arguments) {
  return picked(m, input, arguments, true, false);
}
Value filter_select(Machine& m, const Value& input, Arguments& arguments) {
  return picked(m, input, arguments, false, true);
}
Value filter_selectattr(Machine& m, const Value& input, Arguments& arguments) {
  return picked(m, input, arguments, true, true);
}

Value filter_reverse(Machine& m, const Value& input, Arguments& arguments) {
  Parameters("reverse", arguments, {});
  std::vector<Value> items = m.items_of(input);
  std::reverse(items.begin(), items.end());
  if (input.text()) return joined(m, Text(), items);
  if (input.iterator()) return m.list(std::move(items));
  return m.iterator([&](std::vector<Value>& to) { to = std::move(items); });
}

Value filter_sort(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;  // "a,b" sorts by a, then by b
  if (p.has(2) && p.get(2)->text()) {
    const Text comma(",", Origin::kTemplate);
    paths = split(m, *p.get(2)->text(), &comma, -1, Side::kLeft);
  } else {
    paths.push_back(p.get(2) ? *p.get(2) : Value(None{}));
  }
  Keyed keyed;
  for (Value& item : m.items_of(input)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(sort_key(m, item, &path, p.truth(1, false)));
    Value key =
        m.list(std::move(keys));  // a list even of one: its comparison looks at equality first, and so forgives more
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by_key(m, keyed, p.truth(0, false));
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return m.list(std::move(items));
}

Value filter_sum(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  Value total = p.get(1) ? *p.get(1) : Value(int64_t{0});
  for (Value& item : m.items_of(input))
    total =
        binary(m, Expr::Kind::kAdd, total, p.has(0) ? attribute_path(m, std::move(item), *p.get(0)) : std::move(item));
  return total;
}

Value filter_unique(Machine& m, const Value& input, Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  return m.iterator([&](std::vector<Value>& items) {
    Dict seen;
    for (Value& item : m.items_of(input)) {
      Value key = sort_key(m, item, p.get(1), p.truth(0, false));
      m.charge(key.text() ? 64 : 64 + seen.entries.size() * 8);
      if (seen.find(key)) continue;
      check_key(key);
      seen.set(std::move(key), true);
      items.push_back(std::move(item));
    }
  });
}

}  // namespace lathe::jinja
