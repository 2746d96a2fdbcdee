#pragma once

#include <string>
#include <vector>

#include "engine/executor.h"

namespace lathe {

// "f32" or "bf16"; "" is what config.json says.
Result<DType> activation_dtype(const std::string& name, const glm5_next::TextConfig& config);

// Rows of a device as f32 on the host, [rows, width]. Waits for the queue.
Status rows_to_host(Device& device, const Rows& rows, std::vector<float>& out);

}  // namespace lathe
