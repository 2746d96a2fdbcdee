#include "feedback/growth.h"

#include <fmt/format.h>

#include <cmath>

namespace lathe {

namespace {

constexpr double kFlat = 0.25;  // rounding's random walk grows with 0.5; what is bounded stays below this

}  // namespace

bool Growth::grows() const { return points >= 2 && power > kFlat && power > 2 * error; }

Growth fit_growth(const std::vector<ErrorAtLength>& points) {
  std::vector<double> x, y;
  for (const ErrorAtLength& p : points)
    if (p.error > 0 && std::isfinite(p.error)) x.push_back(std::log(p.length)), y.push_back(std::log(p.error));
  const auto n = static_cast<double>(x.size());
  Growth g{.points = static_cast<int>(x.size())};
  if (g.points < 2) return g;
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0;
  for (size_t i = 0; i < x.size(); ++i) mean_x += x[i] / n, mean_y += y[i] / n;
  for (size_t i = 0; i < x.size(); ++i)
    xx += (x[i] - mean_x) * (x[i] - mean_x), xy += (x[i] - mean_x) * (y[i] - mean_y);
  if (xx == 0) return g;
  g.power = xy / xx;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = y[i] - mean_y - g.power * (x[i] - mean_x);
    rest += off * off;
  }
  if (g.points > 2) g.error = std::sqrt(rest / (n - 2) / xx);
  return g;
}

std::string to_text(const Growth& g) {
  if (g.points < 2) return "too few lengths to fit";
  if (!g.grows()) return fmt::format("flat (length^{:.2f} ± {:.2f})", g.power, g.error);
  return fmt::format("grows with length^{:.2f} ± {:.2f}", g.power, g.error);
}

}  // namespace lathe
