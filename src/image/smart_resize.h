#pragma once

#include <cstdint>

#include "base/status.h"

namespace lathe {

struct Size {
  int height = 0, width = 0;
  bool operator==(const Size&) const = default;
};

// What decides a picture's size in patches (model.md 11.2). Budgets are in tokens; a token is temporal x factor x
// factor pixels.
struct ResizeRule {
  int factor = 28, temporal = 2;
  int min_tokens = 16, max_tokens = 8000;
};

struct ResizePlan {
  Size target;   // multiples of factor: the padded picture
  Size content;  // the picture inside, at the top left
};

// For `frames` frames (an image counts as `temporal`) of one size. An error if even one token a slice is over the
// budget.
Result<ResizePlan> smart_resize(int64_t frames, Size picture, const ResizeRule& rule);

}  // namespace lathe
