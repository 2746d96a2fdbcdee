#include "image/resize.h"

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

constexpr double kCubicSupport = 2;  // the cubic is zero from there on
constexpr int kMaxPrecision = 22;    // of weights in int32 sums of 8-bit values

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// The weights of one axis: output i is the sum of weight[i·taps + j]·input[first[i] + j] over j < count[i].
struct Filter {
  int taps = 0, precision = 0;
  std::vector<int> first, count;
  std::vector<int16_t> weight;
};

Filter make_filter(int from, int to) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = kCubicSupport * stretch;
  Filter f;
  f.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  std::vector<double> weights(static_cast<size_t>(to) * f.taps);
  double largest = 0;
  for (int i = 0; i < to; ++i) {
    const double centre = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int count = std::clamp(std::min(static_cast<int>(centre + support + 0.5), from) - first, 0, f.taps);
    double* w = &weights[static_cast<size_t>(i) * f.taps];
    double total = 0;
    for (int j = 0; j < count; ++j) total += w[j] = cubic((j + first - centre + 0.5) / stretch);
    for (int j = 0; j < count; ++j) largest = std::max(largest, total != 0 ? w[j] /= total : w[j]);
    f.first.push_back(first);
    f.count.push_back(count);
  }
  // As many bits as the largest weight leaves in 15.
  while (f.precision < kMaxPrecision && static_cast<int>(0.5 + largest * (1 << (f.precision + 1))) < 1 << 15)
    ++f.precision;
  for (double w : weights) f.weight.push_back(static_cast<int16_t>(w * (1 << f.precision) + (w < 0 ? -0.5 : 0.5)));
  return f;
}

uint8_t to_byte(int sum, int precision) { return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255)); }

void resize_row(const uint8_t* in, const Filter& f, uint8_t* out, int width) {
  const int half = 1 << (f.precision - 1);
  for (int x = 0; x < width; ++x) {
    const int16_t* w = &f.weight[static_cast<size_t>(x) * f.taps];
    const uint8_t* p = in + f.first[x] * 3;
    int r = half, g = half, b = half;
    for (int j = 0; j < f.count[x]; ++j, p += 3) r += w[j] * p[0], g += w[j] * p[1], b += w[j] * p[2];
    out[x * 3] = to_byte(r, f.precision);
    out[x * 3 + 1] = to_byte(g, f.precision);
    out[x * 3 + 2] = to_byte(b, f.precision);
  }
}

// Row y of the result; a whole row of sums at a time, which the compiler turns into vectors.
void resize_column(const Picture& in, const Filter& f, int y, std::vector<int>& sums, uint8_t* out) {
  std::fill(sums.begin(), sums.end(), 1 << (f.precision - 1));
  for (int j = 0; j < f.count[y]; ++j) {
    const uint8_t* row = in.row(f.first[y] + j);
    const int w = f.weight[static_cast<size_t>(y) * f.taps + j];
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += w * row[i];
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = to_byte(sums[i], f.precision);
}

Picture blank(int width, int height) {
  return {.width = width, .height = height, .rgb = std::vector<uint8_t>(int64_t{width} * height * 3)};
}

}  // namespace

Picture resize(const Picture& picture, Size size) {
  Picture wide;
  if (picture.width != size.width) {
    wide = blank(size.width, picture.height);
    const Filter f = make_filter(picture.width, size.width);
    for (int y = 0; y < picture.height; ++y) resize_row(picture.row(y), f, wide.row(y), size.width);
  }
  const Picture& in = picture.width != size.width ? wide : picture;
  if (in.height == size.height) return in;
  Picture out = blank(size.width, size.height);
  const Filter f = make_filter(in.height, size.height);
  std::vector<int> sums(static_cast<size_t>(size.width) * 3);
  for (int y = 0; y < size.height; ++y) resize_column(in, f, y, sums, out.row(y));
  return out;
}

}  // namespace lathe
