#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/failure.h"
#include "text/jinja/text.h"

namespace lathe::jinja {

class Value;
class Machine;
struct Loop;

// What a name, attribute or item that isn't there gives. It prints as nothing and counts as false; most other uses are
// errors, which then name what was missing.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
// An integer beyond 64 bits: carried through and printed as it was written, not computed with.
struct BigInt {
  std::shared_ptr<const std::string> digits;
};

// Lists and tuples, and the three views of a mapping. None can be changed once made.
struct List {
  enum class Flavor : uint8_t { kList, kTuple, kKeys, kValues, kItems };
  std::vector<Value> items;
  Flavor flavor = Flavor::kList;
  int depth = 1;  // of nesting
};

// What filters such as map and select give: it can be gone through once, has no length, and always counts as true. What
// went wrong in making it goes wrong when it is used.
struct Iterator {
  std::vector<Value> items;
  std::string failure;  // behind the last item; empty: none
  size_t next = 0;
  int depth = 1;
};

// In order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // of text keys, once there are many
  int depth = 1;

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);  // replaces
};

// The one thing that a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  int depth = 0;  // of nesting of what it holds on to
  std::function<Value(Machine&, Arguments&)> call;
};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, int64_t, double, BigInt, std::shared_ptr<const Text>,
                               std::shared_ptr<const List>, std::shared_ptr<Iterator>, std::shared_ptr<const Dict>,
                               std::shared_ptr<Namespace>, std::shared_ptr<const Callable>, std::shared_ptr<Loop>>;
  Value() = default;  // undefined
  Value(None) : storage_(None{}) {}
  Value(bool x) : storage_(x) {}
  Value(int64_t x) : storage_(x) {}
  Value(int) = delete;  // say bool or int64_t
  Value(const char*) = delete;
  Value(double x) : storage_(x) {}
  Value(BigInt x) : storage_(std::move(x)) {}
  Value(Text text) : storage_(std::make_shared<const Text>(std::move(text))) {}
  Value(std::shared_ptr<const Text> text) : storage_(std::move(text)) {}
  Value(std::string bytes, Origin origin) : Value(Text(std::move(bytes), origin)) {}
  Value(List list) : storage_(std::make_shared<const List>(std::move(list))) {}
  Value(Iterator items) : storage_(std::make_shared<Iterator>(std::move(items))) {}
  Value(Dict dict) : storage_(std::make_shared<const Dict>(std::move(dict))) {}
  Value(std::shared_ptr<Namespace> x) : storage_(std::move(x)) {}
  Value(Callable x) : storage_(std::make_shared<const Callable>(std::move(x))) {}
  Value(std::shared_ptr<Loop> x) : storage_(std::move(x)) {}
  static Value undefined(std::string what);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_integer() const { return is<int64_t>() || is<BigInt>(); }  // a bool is not
  bool is_number() const { return is_integer() || is<double>() || is<bool>(); }

  // The thing itself, or null.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&storage_);
  }
  const Text* text() const { return pointee<const Text>(); }
  const List* list() const { return pointee<const List>(); }
  const Dict* dict() const { return pointee<const Dict>(); }
  Iterator* iterator() const { return pointee<Iterator>(); }
  Namespace* name_space() const { return pointee<Namespace>(); }
  const Callable* callable() const { return pointee<const Callable>(); }
  Loop* loop() const { return pointee<Loop>(); }
  std::shared_ptr<Loop> shared_loop() const { return *std::get_if<std::shared_ptr<Loop>>(&storage_); }
  std::shared_ptr<const Text> shared_text() const { return *std::get_if<std::shared_ptr<const Text>>(&storage_); }

  bool truthy() const;
  // Of nesting; 0 for what holds nothing. Namespaces don't count: the machine takes them apart one by one.
  int depth() const;
  const char* type_name() const;        // Python's
  bool same(const Value& other) const;  // Python's `is`

 private:
  template <class T>
  T* pointee() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&storage_);
    return p ? p->get() : nullptr;
  }
  Storage storage_;
};

// Fails, saying what is missing, if `value` is undefined.
void need_defined(const Value& value);
// Python's == and <. less() fails for what has no order.
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);
// Fails for what can't be a key: lists, mappings, tuples that hold such.
void check_key(const Value& key);
// Numbers as a double, where bools count; false for others.
bool as_double(const Value& value, double& out);

}  // namespace lathe::jinja
