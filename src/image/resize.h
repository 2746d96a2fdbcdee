#pragma once

#include "image/picture.h"
#include "image/smart_resize.h"

namespace lathe {

// Antialiased bicubic resize of 8-bit RGB, bit for bit what ATen does on uint8 (model.md 11.2): first along rows, then
// along columns, a pass only where the side changes. The cubic (a = -0.5) is stretched by the reduction factor; a pass
// rounds its weights to 16-bit integers of one precision, and its sums to 8 bits.
Picture resize(const Picture& picture, Size size);

}  // namespace lathe
