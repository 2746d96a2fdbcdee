#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/number_row.h"

namespace lathe {

// Appends rows to a history file, one JSON object a line, each with time, commit, build id and machine: numbers of
// different days are for display, never for a verdict. The file must exist: a wrong path shall not start a new history.
Status append_history(const std::string& path, const std::vector<NumberRow>& rows);

}  // namespace lathe
