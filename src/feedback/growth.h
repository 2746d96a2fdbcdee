#pragma once

#include <string>
#include <vector>

namespace lathe {

// How an error grows with length: error ~ length^power, by least squares over logarithms.
struct Growth {
  double power = 0, error = 0;  // slope, and its standard error (0 of two points)
  int points = 0;
  bool grows() const;  // by more than a quarter of a power, and by more than twice the standard error
};

struct ErrorAtLength {
  double length, error;
};
// Points without an error (0, or not finite) don't count; fewer than two give power 0.
Growth fit_growth(const std::vector<ErrorAtLength>& points);

std::string to_text(const Growth& growth);  // "flat", "grows with length^0.52", ...

}  // namespace lathe
