#pragma once

#include "lathe/status.h"  // IWYU pragma: export
