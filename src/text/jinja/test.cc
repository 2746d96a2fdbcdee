#include "text/jinja/test.h"

#include <algorithm>
#include <iterator>

#include "text/jinja/filter.h"
#include "text/jinja/machine.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_operations.h"

namespace lathe::jinja {

namespace {

const Value& other(const Arguments& arguments) {
  return arguments.positional.empty() ? arguments.named[0].second : arguments.positional[0];
}

int64_t remainder(Machine& m, const Value& v, int64_t by) {
  const Value r = binary(m, Expr::Kind::kModulo, v, by);
  if (const int64_t* i = r.get<int64_t>()) return *i;
  const double* d = r.get<double>();
  return d && *d == static_cast<double>(static_cast<int64_t>(*d)) ? static_cast<int64_t>(*d) : -1;
}

bool iterable(const Value& v) {
  return v.text() || v.list() || v.dict() || v.iterator() || v.is_undefined() || v.loop();
}
bool sequence(const Value& v) {
  return v.text() || v.dict() || v.is_undefined() ||
         (v.list() && (v.list()->flavor == List::Flavor::kList || v.list()->flavor == List::Flavor::kTuple));
}

using M = Machine&;
using V = const Value&;
using A = Arguments&;

constexpr TestEntry kTests[] = {
    {"!=", 1, [](M, V v, A a) { return !equal(v, other(a)); }},
    {"<", 1, [](M, V v, A a) { return less(v, other(a)); }},
    {"<=", 1, [](M, V v, A a) { return !less(other(a), v); }},
    {"==", 1, [](M, V v, A a) { return equal(v, other(a)); }},
    {">", 1, [](M, V v, A a) { return less(other(a), v); }},
    {">=", 1, [](M, V v, A a) { return !less(v, other(a)); }},
    {"boolean", 0, [](M, V v, A) { return v.is<bool>(); }},
    {"callable", 0, [](M, V v, A) { return v.callable() || v.loop() || v.is_undefined(); }},
    {"defined", 0, [](M, V v, A) { return !v.is_undefined(); }},
    {"divisibleby", 1, [](M m, V v, A a) { return equal(binary(m, Expr::Kind::kModulo, v, other(a)), int64_t{0}); }},
    {"eq", 1, [](M, V v, A a) { return equal(v, other(a)); }},
    {"equalto", 1, [](M, V v, A a) { return equal(v, other(a)); }},
    {"escaped", 0, [](M, V, A) { return false; }},
    {"even", 0, [](M m, V v, A) { return remainder(m, v, 2) == 0; }},
    {"false", 0, [](M, V v, A) { return v.is<bool>() && !v.truthy(); }},
    {"filter", 0, [](M m, V v, A) { return check_key(v), find_filter(m.str(v)->view()) != nullptr; }},
    {"float", 0, [](M, V v, A) { return v.is<double>(); }},
    {"ge", 1, [](M, V v, A a) { return !less(v, other(a)); }},
    {"greaterthan", 1, [](M, V v, A a) { return less(other(a), v); }},
    {"gt", 1, [](M, V v, A a) { return less(other(a), v); }},
    {"in", 1, [](M m, V v, A a) { return m.contains(other(a), v); }},
    {"integer", 0, [](M, V v, A) { return v.is_integer(); }},
    {"iterable", 0, [](M, V v, A) { return iterable(v); }},
    {"le", 1, [](M, V v, A a) { return !less(other(a), v); }},
    {"lessthan", 1, [](M, V v, A a) { return less(v, other(a)); }},
    {"lower", 0, [](M m, V v, A) { return has_case(m.str(v)->view(), false); }},
    {"lt", 1, [](M, V v, A a) { return less(v, other(a)); }},
    {"mapping", 0, [](M, V v, A) { return v.dict() != nullptr; }},
    {"ne", 1, [](M, V v, A a) { return !equal(v, other(a)); }},
    {"none", 0, [](M, V v, A) { return v.is_none(); }},
    {"number", 0, [](M, V v, A) { return v.is_number(); }},
    {"odd", 0, [](M m, V v, A) { return remainder(m, v, 2) == 1; }},
    {"sameas", 1, [](M, V v, A a) { return v.same(other(a)); }},
    {"sequence", 0, [](M, V v, A) { return sequence(v); }},
    {"string", 0, [](M, V v, A) { return v.text() != nullptr; }},
    {"test", 0, [](M m, V v, A) { return check_key(v), find_test(m.str(v)->view()) != nullptr; }},
    {"true", 0, [](M, V v, A) { return v.is<bool>() && v.truthy(); }},
    {"undefined", 0, [](M, V v, A) { return v.is_undefined(); }},
    {"upper", 0, [](M m, V v, A) { return has_case(m.str(v)->view(), true); }},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& e) { return e.name == name; });
  return at == std::end(kTests) ? nullptr : at;
}

}  // namespace lathe::jinja
