#include "text/jinja/method.h"

#include "text/jinja/machine.h"
#include "text/jinja/parameters.h"

namespace lathe::jinja {

namespace {

// -- dict
Value get(Machine&, const Value& self, Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  if (const Value* value = self.dict()->find(*p.get(0))) return *value;
  return p.get(1) ? *p.get(1) : Value(None{});
}

Value items(Machine& m, const Value& self, Arguments& arguments) {
  Parameters("items", arguments, {});
  std::vector<Value> pairs;
  for (const auto& [k, v] : self.dict()->entries) pairs.push_back(m.list({k, v}, List::Flavor::kTuple));
  return m.list(std::move(pairs), List::Flavor::kItems);
}

Value keys(Machine& m, const Value& self, Arguments& arguments) {
  Parameters("keys", arguments, {});
  return m.list(m.items_of(self), List::Flavor::kKeys);
}

Value values(Machine& m, const Value& self, Arguments& arguments) {
  Parameters("values", arguments, {});
  std::vector<Value> out;
  for (const auto& [k, v] : self.dict()->entries) out.push_back(v);
  return m.list(std::move(out), List::Flavor::kValues);
}

Value copy(Machine&, const Value& self, Arguments& arguments) {
  Parameters("copy", arguments, {});
  return self;
}

// -- list and tuple
Value index(Machine&, const Value& self, Arguments& arguments) {
  const Parameters p("index", arguments, {"value"}, 1);
  const auto& list = self.list()->items;
  for (size_t i = 0; i < list.size(); ++i)
    if (equal(list[i], *p.get(0))) return static_cast<int64_t>(i);
  fail("value is not in list");
}

Value count(Machine&, const Value& self, Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.list()->items) n += equal(item, *p.get(0));
  return n;
}

Value changes(Machine&, const Value& self, Arguments&) { fail("a template can't change a {}", self.type_name()); }

struct Entry {
  std::string_view name;
  Method method;
};
constexpr Entry kOfDict[] = {
    {"clear", changes},  {"copy", copy},     {"get", get},         {"items", items},
    {"keys", keys},      {"pop", changes},   {"popitem", changes}, {"setdefault", changes},
    {"update", changes}, {"values", values},
};
constexpr Entry kOfList[] = {
    {"append", changes}, {"clear", changes},   {"copy", copy},      {"count", count},
    {"extend", changes}, {"index", index},     {"insert", changes}, {"pop", changes},
    {"remove", changes}, {"reverse", changes}, {"sort", changes},
};

}  // namespace

Method find_method(const Value& self, std::string_view name) {
  if (self.text()) return find_text_method(name);
  if (self.dict())
    for (const Entry& e : kOfDict)
      if (e.name == name) return e.method;
  if (const List* l = self.list(); l && (l->flavor == List::Flavor::kList || l->flavor == List::Flavor::kTuple))
    for (const Entry& e : kOfList)
      if (e.name == name) return e.method;
  return nullptr;
}

}  // namespace lathe::jinja
