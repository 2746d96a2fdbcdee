#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace lathe::jinja {

// a + b and its kin (kAdd to kPower), as Python has them. Integers beyond 64 bits fail.
Value binary(Machine& machine, Expr::Kind kind, const Value& a, const Value& b);
Value negated(const Value& a);
Value positive(const Value& a);

// object[begin:end:step]; a bound that is null or none is left out.
Value slice(Machine& machine, const Value& object, const Value* begin, const Value* end, const Value* step);

}  // namespace lathe::jinja
