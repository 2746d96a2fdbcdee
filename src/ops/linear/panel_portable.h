#pragma once

#include "ops/linear/panel.h"

// panel.h in plain C++. An instruction set that brings only tiles takes everything else from here.

namespace lathe::portable {

constexpr int kRowSums = kPanel * 4;  // running sums of one row against a panel

// Adds `quads` quads of `rows` rows to their running sums, [rows, kPanel, 4]. A quad is 4 fp32, or 8 int16 of which
// lane j owns 2j and 2j + 1; a panel is [quads, kPanel] quads.
struct Tiles {
  void (*f32)(const float* const* x, int64_t rows, const float* panel, int64_t quads, float* sums);
  void (*i16)(const int16_t* const* x, int64_t rows, const int16_t* panel, int64_t quads, int32_t* sums);
};

void multiply_by_tiles(const Tiles& tiles, const PanelBlock& b, float* values, const PanelScratch& s);

}  // namespace lathe::portable
