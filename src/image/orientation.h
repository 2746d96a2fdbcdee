#pragma once

#include <span>

#include "image/picture.h"

namespace lathe {

// The orientation (1 to 8) that a block of EXIF data asks for: a TIFF header and its first directory. 1 if it says
// nothing usable.
int exif_orientation(std::span<const uint8_t> tiff);

// Turns and mirrors a stored picture so that it stands upright.
Picture upright(Picture stored, int orientation);

}  // namespace lathe
