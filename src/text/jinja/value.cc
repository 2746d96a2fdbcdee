#include "text/jinja/value.h"

#include <cmath>

#include "text/jinja/loop.h"

namespace lathe::jinja {

namespace {
// Fewer keys than this are looked through one by one.
constexpr size_t kIndexedFrom = 12;

int compare_lists(const List& a, const List& b) {
  for (size_t i = 0; i < std::min(a.items.size(), b.items.size()); ++i) {
    if (equal(a.items[i], b.items[i])) continue;
    return less(a.items[i], b.items[i]) ? -1 : 1;
  }
  return a.items.size() < b.items.size() ? -1 : a.items.size() > b.items.size();
}

// int64 and double compare exactly, as in Python: the integer isn't rounded first.
bool integer_below(int64_t a, double b) {
  if (std::isnan(b)) return false;
  if (b >= 9223372036854775808.0) return true;
  if (b < -9223372036854775808.0) return false;
  const double floor = std::floor(b);
  return a < static_cast<int64_t>(floor) || (a == static_cast<int64_t>(floor) && floor < b);
}
bool integer_equals(int64_t a, double b) {
  return b >= -9223372036854775808.0 && b < 9223372036854775808.0 && std::floor(b) == b && static_cast<int64_t>(b) == a;
}

const int64_t* as_integer(const Value& v, int64_t& room) {
  if (const bool* b = v.get<bool>()) return room = *b, &room;
  return v.get<int64_t>();
}
}  // namespace

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(std::string(key));
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries)
    if (const Text* text = k.text(); text && text->view() == key) return &v;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (const Text* text = key.text()) return find(text->view());
  for (const auto& [k, v] : entries)
    if (equal(k, key)) return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth = std::max(depth, 1 + value.depth());
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);  // ours: find() only looks into entries
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexedFrom) return;
  for (size_t i = index.empty() ? 0 : entries.size() - 1; i < entries.size(); ++i)
    if (const Text* text = entries[i].first.text()) index.emplace(text->view(), i);
}

Value* Namespace::find(std::string_view name) {
  for (auto& [n, v] : attributes)
    if (n == name) return &v;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  if (Value* old = find(name)) {
    *old = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

Value Value::undefined(std::string what) {
  Value v;
  v.storage_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return v;
}

void need_defined(const Value& value) {
  if (const Undefined* u = value.get<Undefined>()) fail("{}", u->what ? *u->what : "a value is undefined");
}

bool Value::truthy() const {
  if (is<Undefined>() || is<None>()) return false;
  if (const bool* b = get<bool>()) return *b;
  if (const int64_t* i = get<int64_t>()) return *i != 0;
  if (const double* d = get<double>()) return *d != 0;
  if (const Text* t = text()) return t->size() != 0;
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->entries.empty();
  return true;
}

int Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth;
  if (const Iterator* i = iterator()) return i->depth;
  if (const Callable* c = callable()) return c->depth;
  if (const Loop* l = loop()) return l->depth;
  return 0;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool", "int",       "float",    "int",        "str",
                                    "list",      "generator", "dict", "Namespace", "function", "LoopContext"};
  static_assert(std::size(kNames) == std::variant_size_v<Storage>);
  constexpr const char* kFlavors[] = {"list", "tuple", "dict_keys", "dict_values", "dict_items"};
  if (const List* l = list()) return kFlavors[static_cast<int>(l->flavor)];
  return kNames[storage_.index()];
}

bool Value::same(const Value& other) const {
  if (storage_.index() != other.storage_.index()) return false;
  if (is<None>()) return true;
  if (is<bool>() || is<int64_t>() || is<double>() || text()) return equal(*this, other);
  return (list() && list() == other.list()) || (dict() && dict() == other.dict()) ||
         (iterator() && iterator() == other.iterator()) || (name_space() && name_space() == other.name_space()) ||
         (callable() && callable() == other.callable()) || (loop() && loop() == other.loop());
}

void check_key(const Value& key) {
  const List* l = key.list();
  if (key.dict() || (l && l->flavor != List::Flavor::kTuple)) fail("unhashable type: '{}'", key.type_name());
  if (l)
    for (const Value& item : l->items) check_key(item);
}

bool as_double(const Value& value, double& out) {
  if (const bool* b = value.get<bool>()) return out = *b, true;
  if (const int64_t* i = value.get<int64_t>()) return out = static_cast<double>(*i), true;
  if (const double* d = value.get<double>()) return out = *d, true;
  return false;
}

bool equal(const Value& a, const Value& b) {
  int64_t room_a = 0, room_b = 0;
  const int64_t *ia = as_integer(a, room_a), *ib = as_integer(b, room_b);
  const double *da = a.get<double>(), *db = b.get<double>();
  if (ia && ib) return *ia == *ib;
  if (ia && db) return integer_equals(*ia, *db);
  if (da && ib) return integer_equals(*ib, *da);
  if (da && db) return *da == *db;
  if (a.text() && b.text()) return a.text()->view() == b.text()->view();
  if (a.is_undefined() || a.is_none()) return a.is_undefined() == b.is_undefined() && a.is_none() == b.is_none();
  if (const auto *x = a.get<BigInt>(), *y = b.get<BigInt>(); x && y) return *x->digits == *y->digits;
  if (const List *x = a.list(), *y = b.list(); x && y) {
    if (x->flavor != y->flavor || x->items.size() != y->items.size()) return false;
    for (size_t i = 0; i < x->items.size(); ++i)
      if (!equal(x->items[i], y->items[i])) return false;
    return true;
  }
  if (const Dict *x = a.dict(), *y = b.dict(); x && y) {
    if (x->entries.size() != y->entries.size()) return false;
    for (const auto& [k, v] : x->entries)
      if (const Value* other = y->find(k); !other || !equal(v, *other)) return false;
    return true;
  }
  return a.same(b);
}

bool less(const Value& a, const Value& b) {
  int64_t room_a = 0, room_b = 0;
  const int64_t *ia = as_integer(a, room_a), *ib = as_integer(b, room_b);
  const double *da = a.get<double>(), *db = b.get<double>();
  if (ia && ib) return *ia < *ib;
  if (ia && db) return integer_below(*ia, *db);
  if (da && ib) return !std::isnan(*da) && !integer_equals(*ib, *da) && !integer_below(*ib, *da);
  if (da && db) return *da < *db;
  if (a.text() && b.text()) return a.text()->view() < b.text()->view();  // UTF-8 sorts as code points do
  const List *x = a.list(), *y = b.list();
  if (x && y && x->flavor == y->flavor && (x->flavor == List::Flavor::kList || x->flavor == List::Flavor::kTuple))
    return compare_lists(*x, *y) < 0;
  need_defined(a), need_defined(b);
  fail("'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name());
}

}  // namespace lathe::jinja
