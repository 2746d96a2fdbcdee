#pragma once

#include "lathe/check.h"  // IWYU pragma: export
