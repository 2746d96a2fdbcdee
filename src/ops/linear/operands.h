#pragma once

#include "base/status.h"
#include "base/view.h"

// What every operator with a matrix product asks of its operands; each error says which sizes contradict each other.

namespace lathe {

Status check_activations(const Rows& x, const char* name);           // any dtype that linear takes as x
Status check_weight(const Weight& w, int64_t in, const char* name);  // a dtype and scales that linear takes as w
Status check_result(const Rows& y, int64_t rows, int64_t width, const char* name);
Status check_bias(Array<const float> bias, int64_t out, const char* name);  // empty, or one value an output

}  // namespace lathe
