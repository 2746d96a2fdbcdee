#include "text/jinja/operators.h"

#include <cmath>

#include "text/jinja/machine.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {

using Kind = Expr::Kind;

const char* symbol(Kind kind) {
  switch (kind) {
    case Kind::kAdd:
      return "+";
    case Kind::kSubtract:
      return "-";
    case Kind::kMultiply:
      return "*";
    case Kind::kDivide:
      return "/";
    case Kind::kFloorDivide:
      return "//";
    case Kind::kModulo:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void no_operation(Kind kind, const Value& a, const Value& b) {
  need_defined(a), need_defined(b);
  fail("unsupported operand type(s) for {}: '{}' and '{}'", symbol(kind), a.type_name(), b.type_name());
}

bool as_integer(const Value& v, int64_t& out) {
  if (const int64_t* i = v.get<int64_t>()) return out = *i, true;
  if (const bool* b = v.get<bool>()) return out = *b, true;
  return false;
}

[[noreturn]] void too_large() { fail("an integer is too large"); }

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  const double r = std::pow(a, b);
  if (std::isnan(r) && !std::isnan(a) && !std::isnan(b)) fail("a power that is no real number");
  if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) fail("a power is too large");
  return r;
}

Value of_integers(Kind kind, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (kind) {
    case Kind::kAdd:
      if (__builtin_add_overflow(a, b, &r)) too_large();
      return r;
    case Kind::kSubtract:
      if (__builtin_sub_overflow(a, b, &r)) too_large();
      return r;
    case Kind::kMultiply:
      if (__builtin_mul_overflow(a, b, &r)) too_large();
      return r;
    case Kind::kDivide:
      if (b == 0) fail("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case Kind::kFloorDivide:
    case Kind::kModulo: {
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1)
        return of_integers(kind == Kind::kModulo ? Kind::kMultiply : Kind::kSubtract, 0, a);  // INT64_MIN / -1 traps
      const int64_t q = a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
      return kind == Kind::kFloorDivide ? q : a - q * b;
    }
    default:
      if (b < 0) return float_power(static_cast<double>(a), static_cast<double>(b));
      return integer_power(a, b);
  }
}

Value of_doubles(Kind kind, double a, double b) {
  switch (kind) {
    case Kind::kAdd:
      return a + b;
    case Kind::kSubtract:
      return a - b;
    case Kind::kMultiply:
      return a * b;
    case Kind::kDivide:
      if (b == 0) fail("float division by zero");
      return a / b;
    case Kind::kFloorDivide:
    case Kind::kModulo: {
      if (b == 0) fail("float division or modulo by zero");
      double m = std::fmod(a, b);
      if (m != 0 && (m < 0) != (b < 0)) m += b;
      if (m == 0) m = std::copysign(0.0, b);
      if (kind == Kind::kModulo) return m;
      return std::round((a - m) / b);
    }
    default:
      return float_power(a, b);
  }
}

// text * n and list * n
Value repeated(Machine& machine, const Value& value, int64_t times) {
  const Text* t = value.text();
  const size_t unit = t ? t->size() : value.list()->items.size() * 32;
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  size_t total = 0;
  if (__builtin_mul_overflow(unit, count, &total)) total = SIZE_MAX;
  machine.charge(total);
  if (unit == 0) return value;
  if (t) {
    TextBuilder out;
    for (size_t i = 0; i < count; ++i) out.append(*t);
    return machine.text(out);
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i) items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  return machine.list(std::move(items), value.list()->flavor);
}

bool is_sequence(const Value& v) {
  return v.text() ||
         (v.list() && (v.list()->flavor == List::Flavor::kList || v.list()->flavor == List::Flavor::kTuple));
}

}  // namespace

Value binary(Machine& machine, Kind kind, const Value& a, const Value& b) {
  int64_t i = 0, j = 0;
  if (as_integer(a, i) && as_integer(b, j)) return of_integers(kind, i, j);
  double x = 0, y = 0;
  if (as_double(a, x) && as_double(b, y)) return of_doubles(kind, x, y);
  if (kind == Kind::kAdd && a.text() && b.text()) {
    machine.charge(a.text()->size() + b.text()->size());
    TextBuilder out;
    out.append(*a.text());
    out.append(*b.text());
    return machine.text(out);
  }
  if (kind == Kind::kAdd && is_sequence(a) && is_sequence(b) && a.list() && b.list() &&
      a.list()->flavor == b.list()->flavor) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return machine.list(std::move(items), a.list()->flavor);
  }
  if (kind == Kind::kMultiply && is_sequence(a) && as_integer(b, j)) return repeated(machine, a, j);
  if (kind == Kind::kMultiply && is_sequence(b) && as_integer(a, i)) return repeated(machine, b, i);
  if (kind == Kind::kAdd && a.text() && !b.is_undefined())
    fail("can only concatenate str (not \"{}\") to str", b.type_name());
  if (kind == Kind::kModulo && a.text()) fail("formatting with % is not supported");
  no_operation(kind, a, b);
}

Value negated(const Value& a) {
  if (const double* d = a.get<double>()) return -*d;
  int64_t i = 0;
  if (as_integer(a, i)) return of_integers(Kind::kSubtract, 0, i);
  need_defined(a);
  fail("bad operand type for unary -: '{}'", a.type_name());
}

Value positive(const Value& a) {
  int64_t i = 0;
  if (as_integer(a, i)) return i;
  if (a.get<double>()) return a;
  need_defined(a);
  fail("bad operand type for unary +: '{}'", a.type_name());
}

namespace {

struct Bounds {
  int64_t begin, end, step;
};

// Python's rules for where a slice of `length` items begins and ends.
Bounds slice_bounds(int64_t length, const Value* begin, const Value* end, const Value* step) {
  const auto number = [](const Value* v, int64_t fallback) {
    int64_t i = fallback;
    if (v && !v->is_none() && !as_integer(*v, i)) {
      need_defined(v);
      fail("slice indices must be integers or None, not {}", v->type_name());
    }
    return i;
  };
  Bounds b{0, 0, number(step, 1)};
  if (b.step == 0) fail("slice step cannot be zero");
  const bool down = b.step < 0;
  const int64_t low = down ? -1 : 0, high = down ? length - 1 : length;
  const auto clamped = [&](const Value* v, int64_t fallback) {
    int64_t i = number(v, fallback);
    if (!v || v->is_none()) return i;
    if (i < 0) i += length;
    return std::max(low, std::min(high, i));
  };
  b.begin = clamped(begin, down ? length - 1 : 0);
  b.end = clamped(end, down ? -1 : length);
  return b;
}

bool goes_on(const Bounds& b, int64_t i) { return b.step > 0 ? i < b.end : i > b.end; }

// Past the end in steps that can't overflow.
int64_t next(const Bounds& b, int64_t i) {
  int64_t n = 0;
  if (__builtin_add_overflow(i, b.step, &n)) return b.end;
  return n;
}

}  // namespace

Value slice(Machine& machine, const Value& object, const Value* begin, const Value* end, const Value* step) {
  need_defined(object);
  if (const Text* t = object.text()) {
    // Where each character begins; for ASCII, which is most text, that is its index.
    const bool ascii = utf8_length(t->view()) == t->size();
    std::vector<size_t> offsets;
    for (size_t at = 0; !ascii && at < t->size(); at += utf8_step(t->view(), at).bytes) offsets.push_back(at);
    machine.charge(t->size() / 8);
    if (!ascii) offsets.push_back(t->size());
    const int64_t length = ascii ? static_cast<int64_t>(t->size()) : static_cast<int64_t>(offsets.size()) - 1;
    const auto at = [&](int64_t i) { return ascii ? static_cast<size_t>(i) : offsets[i]; };
    const Bounds b = slice_bounds(length, begin, end, step);
    TextBuilder out;
    if (b.step == 1) {
      if (b.begin < b.end) out.append(*t, at(b.begin), at(b.end) - at(b.begin));
    } else {
      for (int64_t i = b.begin; goes_on(b, i); i = next(b, i)) out.append(*t, at(i), at(i + 1) - at(i));
    }
    machine.charge(out.size());
    return machine.text(out);
  }
  if (const List* l = object.list(); l && is_sequence(object)) {
    const Bounds b = slice_bounds(static_cast<int64_t>(l->items.size()), begin, end, step);
    std::vector<Value> items;
    for (int64_t i = b.begin; goes_on(b, i); i = next(b, i)) items.push_back(l->items[i]);
    return machine.list(std::move(items), l->flavor);
  }
  fail("'{}' object can't be sliced", object.type_name());
}

}  // namespace lathe::jinja
