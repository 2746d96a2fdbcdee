#pragma once

#include <string>

#include "base/status.h"
#include "ops/sample/sample.h"

namespace lathe {

// Sampling as a model folder's generation_config.json wants it where a request doesn't say; greedy without that file.
Result<SampleSettings> read_generation_defaults(const std::string& model_dir);

}  // namespace lathe
