#include "text/jinja/test.h"

#include <algorithm>
#include <iterator>

#include "text/jinja/filter.h"
#include "text/jinja/machine.h"
#include "text/jinja/operators.h"
#include "text/jinja/parameters.h"
#include "text/jinja/text_operations.h"

namespace lathe::jinja {

namespace {

const Value& other(std::string_view test, const Arguments& arguments) {
  Parameters(test, arguments, {"other"}, 1);
  return arguments.positional.empty() ? arguments.named[0].second : arguments.positional[0];
}

int64_t remainder(Machine& m, const Value& v, int64_t by) {
  const Value r = binary(m, Expr::Kind::kModulo, v, by);
  if (const int64_t* i = r.get<int64_t>()) return *i;
  const double* d = r.get<double>();
  return d && *d == static_cast<double>(static_cast<int64_t>(*d)) ? static_cast<int64_t>(*d) : -1;
}

bool iterable(const Value& v) { return v.text() || v.list() || v.dict() || v.iterator() || v.is_undefined() || v.loop(); }
bool sequence(const Value& v) {
  return v.text() || v.dict() || v.is_undefined() ||
         (v.list() && (v.list()->flavor == List::Flavor::kList || v.list()->flavor == List::Flavor::kTuple));
}

using M = Machine&;
using V = const Value&;
using A = Arguments&;

constexpr TestEntry kTests[] = {
    {"!=", [](M, V v, A a) { return !equal(v, other("!=", a)); }},
    {"<", [](M, V v, A a) { return less(v, other("<", a)); }},
    {"<=", [](M, V v, A a) { return !less(other("<=", a), v); }},
    {"==", [](M, V v, A a) { return equal(v, other("==", a)); }},
    {">", [](M, V v, A a) { return less(other(">", a), v); }},
    {">=", [](M, V v, A a) { return !less(v, other(">=", a)); }},
    {"boolean", [](M, V v, A) { return v.is<bool>(); }},
    {"callable", [](M, V v, A) { return v.callable() != nullptr || v.loop() != nullptr; }},
    {"defined", [](M, V v, A) { return !v.is_undefined(); }},
    {"divisibleby", [](M m, V v, A a) { return equal(binary(m, Expr::Kind::kModulo, v, other("divisibleby", a)), int64_t{0}); }},
    {"eq", [](M, V v, A a) { return equal(v, other("eq", a)); }},
    {"equalto", [](M, V v, A a) { return equal(v, other("equalto", a)); }},
    {"escaped", [](M, V, A) { return false; }},
    {"even", [](M m, V v, A) { return remainder(m, v, 2) == 0; }},
    {"false", [](M, V v, A) { return v.is<bool>() && !v.truthy(); }},
    {"filter", [](M m, V v, A) { return find_filter(m.str(v)->view()) != nullptr; }},
    {"float", [](M, V v, A) { return v.is<double>(); }},
    {"ge", [](M, V v, A a) { return !less(v, other("ge", a)); }},
    {"greaterthan", [](M, V v, A a) { return less(other("greaterthan", a), v); }},
    {"gt", [](M, V v, A a) { return less(other("gt", a), v); }},
    {"in", [](M m, V v, A a) { return m.contains(other("in", a), v); }},
    {"integer", [](M, V v, A) { return v.is_integer(); }},
    {"iterable", [](M, V v, A) { return iterable(v); }},
    {"le", [](M, V v, A a) { return !less(other("le", a), v); }},
    {"lessthan", [](M, V v, A a) { return less(v, other("lessthan", a)); }},
    {"lower", [](M m, V v, A) { return has_case(m.str(v)->view(), false); }},
    {"lt", [](M, V v, A a) { return less(v, other("lt", a)); }},
    {"mapping", [](M, V v, A) { return v.dict() != nullptr; }},
    {"ne", [](M, V v, A a) { return !equal(v, other("ne", a)); }},
    {"none", [](M, V v, A) { return v.is_none(); }},
    {"number", [](M, V v, A) { return v.is_number(); }},
    {"odd", [](M m, V v, A) { return remainder(m, v, 2) == 1; }},
    {"sameas", [](M, V v, A a) { return v.same(other("sameas", a)); }},
    {"sequence", [](M, V v, A) { return sequence(v); }},
    {"string", [](M, V v, A) { return v.text() != nullptr; }},
    {"test", [](M m, V v, A) { return find_test(m.str(v)->view()) != nullptr; }},
    {"true", [](M, V v, A) { return v.is<bool>() && v.truthy(); }},
    {"undefined", [](M, V v, A) { return v.is_undefined(); }},
    {"upper", [](M m, V v, A) { return has_case(m.str(v)->view(), true); }},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto at = std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& e) { return e.name == name; });
  return at == std::end(kTests) ? nullptr : at;
}

}  // namespace lathe::jinja
