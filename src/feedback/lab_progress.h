#pragma once

#include <functional>
#include <string>

namespace lathe {

// Told what a case study does next.
using LabProgress = std::function<void(const std::string& what)>;

}  // namespace lathe
