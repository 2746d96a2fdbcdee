#pragma once

#include <string>

#include "base/status.h"
#include "feedback/trace_tables.h"

namespace lathe {

// Chrome trace-event JSON that opens in Perfetto and in chrome://tracing, and that import_chrome reads back to the same
// tables. Compressed if the name ends in .gz. Thread states, sampled stacks and facts other than those of the recording
// have no place in the format and are left out.
Status write_chrome(const Trace& trace, const std::string& path);
std::string chrome_json(const Trace& trace);

}  // namespace lathe
