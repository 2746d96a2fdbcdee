#pragma once

#include <string>
#include <vector>

#include "base/probe.h"
#include "feedback/trace_tables.h"

namespace lathe {

// What a recorder's rings hold, as tables. The writing threads must be at rest. `settings` are kept as facts of the
// run.
Trace collect(const Recorder& recorder, const std::vector<std::pair<std::string, std::string>>& settings = {});

}  // namespace lathe
