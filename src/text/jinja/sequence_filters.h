#pragma once

#include "text/jinja/value.h"

// Filters over lists and mappings; filter.cc lists them.
namespace lathe::jinja {

Value filter_dictsort(Machine& m, const Value& input, Arguments& arguments);
Value filter_first(Machine& m, const Value& input, Arguments& arguments);
Value filter_items(Machine& m, const Value& input, Arguments& arguments);
Value filter_join(Machine& m, const Value& input, Arguments& arguments);
Value filter_last(Machine& m, const Value& input, Arguments& arguments);
Value filter_length(Machine& m, const Value& input, Arguments& arguments);
Value filter_list(Machine& m, const Value& input, Arguments& arguments);
Value filter_map(Machine& m, const Value& input, Arguments& arguments);
Value filter_max(Machine& m, const Value& input, Arguments& arguments);
Value filter_min(Machine& m, const Value& input, Arguments& arguments);
Value filter_reject(Machine& m, const Value& input, Arguments& arguments);
Value filter_rejectattr(Machine& m, const Value& input, Arguments& arguments);
Value filter_reverse(Machine& m, const Value& input, Arguments& arguments);
Value filter_select(Machine& m, const Value& input, Arguments& arguments);
Value filter_selectattr(Machine& m, const Value& input, Arguments& arguments);
Value filter_sort(Machine& m, const Value& input, Arguments& arguments);
Value filter_sum(Machine& m, const Value& input, Arguments& arguments);
Value filter_unique(Machine& m, const Value& input, Arguments& arguments);

}  // namespace lathe::jinja
