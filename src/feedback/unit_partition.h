#pragma once

#include <map>
#include <string>
#include <vector>

#include "feedback/trace_tables.h"

// A trace cut into units of work, and each unit into addresses that add up to it. What `explain` compares.
namespace lathe {

struct AddressTime {
  int64_t ns = 0, calls = 0;
};

// By path: phase, layer kind, operator, variant, shape ("rows=8"), what ("compute", "in" a call, a wait).
using AddressTimes = std::map<std::vector<std::string>, AddressTime>;

struct Unit {
  Interval window;
  AddressTimes parts;  // add up to the window
};

inline constexpr const char* kUnexplained = "unexplained";

// Units by phase, in order of time. `within`: the spans whose name contains it; "": Lathe's prefills and decode steps,
// a profiler's steps, or else the whole trace.
std::map<std::string, std::vector<Unit>> partition_units(const Trace& trace, const std::string& within);

}  // namespace lathe
