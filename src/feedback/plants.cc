#include "feedback/plants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace lathe {

namespace {

// A field on its own, contiguous, to be spoiled.
struct Copy {
  FieldView view;
  std::vector<char> bytes;
  std::vector<float> scale;

  explicit Copy(const FieldView& f) : view(f), bytes(f.elements() * dtype_bytes(f.dtype)) {
    const int64_t element = dtype_bytes(f.dtype);
    for (int64_t r = 0; r < f.rows; ++r)
      std::memcpy(&bytes[r * f.width * element], static_cast<const char*>(f.data) + r * f.stride * element,
                  f.width * element);
    view.stride = f.width;
    if (f.scale) scale.assign(f.scale, f.scale + (f.block ? f.elements() / f.block : f.rows));
    settle();
  }
  Copy(const Copy& from) : view(from.view), bytes(from.bytes), scale(from.scale) { settle(); }
  Copy& operator=(const Copy& from) {
    view = from.view, bytes = from.bytes, scale = from.scale;
    settle();
    return *this;
  }
  void settle() {
    view.data = bytes.data();
    if (view.scale) view.scale = scale.data();
  }
  char* at(int64_t i) { return &bytes[i * dtype_bytes(view.dtype)]; }
};

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }

double get(Copy& c, int64_t i) {
  if (c.view.dtype == DType::kF32) return *reinterpret_cast<float*>(c.at(i));
  return to_float(*reinterpret_cast<bf16*>(c.at(i)));
}
void set(Copy& c, int64_t i, float x) {
  if (c.view.dtype == DType::kF32)
    *reinterpret_cast<float*>(c.at(i)) = x;
  else
    *reinterpret_cast<bf16*>(c.at(i)) = to_bf16(x);
}

// Mantissa cut to the next format below the one that the tolerance asks for: bf16, or the three bits of e4m3.
float coarser(double x, double tolerance) {
  if (tolerance < 1e-3) return round_bf16(static_cast<float>(x));
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(mantissa * 16) / 16, exponent));
}

double energy(Copy& c, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i)
    if (const double x = get(c, i); std::isfinite(x)) sum += x * x;
  return sum;
}

// Where the result is, as far as a ratio of RMS can see: values of a field may span many orders of magnitude.
int64_t place_of_greatest(Copy& c) {
  int64_t best = 0;
  double greatest = 0;
  for (int64_t i = 0; i < c.view.elements(); ++i)
    if (const double x = std::fabs(get(c, i)); std::isfinite(x) && x > greatest) greatest = x, best = i;
  return best;
}

// The last quarter, or the strongest one where that is next to nothing.
void zero_a_quarter(Copy& c) {
  const int64_t n = c.view.elements(), element = dtype_bytes(c.view.dtype);
  int64_t begin = n * 3 / 4, end = n;
  if (is_float(c.view.dtype)) {
    const double all = energy(c, 0, n);
    for (int q = 0; q < 4 && energy(c, begin, end) < 0.01 * all; ++q) begin = n * q / 4, end = n * (q + 1) / 4;
  }
  std::fill(c.bytes.begin() + begin * element, c.bytes.begin() + end * element, 0);
}

// The number of elements that a coarser format would move by more than fp32's own rounding.
int64_t moved_by_coarseness(Copy& c, double tolerance) {
  int64_t moved = 0;
  for (int64_t i = 0; i < c.view.elements(); ++i)
    if (const double x = get(c, i); std::isfinite(x))
      moved += std::fabs(coarser(x, tolerance) - x) > 1e-5 * std::fabs(x);
  return moved;
}

struct Plant {
  const char* name;
  std::function<void(Copy&)> spoil;
};

std::vector<Plant> plants_for(const FieldView& expected, const FieldView& other, const std::vector<FieldView>& inputs,
                              double tolerance) {
  const int64_t n = expected.elements(), element = dtype_bytes(expected.dtype);
  std::vector<Plant> plants = {
      {"zeros", [](Copy& c) { std::fill(c.bytes.begin(), c.bytes.end(), 0); }},
      {"the first element everywhere",
       [=](Copy& c) {
         for (int64_t i = 1; i < n; ++i) std::memcpy(c.at(i), c.at(0), element);
       }},
      {"shifted by one element",
       [=](Copy& c) { std::rotate(c.bytes.begin(), c.bytes.begin() + element, c.bytes.end()); }},
      {"a quarter of zeros", zero_a_quarter},
  };
  if (other.elements() == n) plants.push_back({"the result of another seed", [other](Copy& c) { c = Copy(other); }});
  for (const FieldView& in : inputs)
    if (in.dtype == expected.dtype && in.elements() == n)
      plants.push_back({"an input", [in](Copy& c) { c.bytes = Copy(in).bytes, c.settle(); }});
  if (!is_float(expected.dtype)) return plants;
  plants.push_back({"one NaN", [=](Copy& c) { set(c, n / 2, NAN); }});
  plants.push_back({"one negated block", [=](Copy& c) {
                      const int64_t begin = place_of_greatest(c) / 16 * 16;
                      for (int64_t i = begin; i < std::min(n, begin + 16); ++i)
                        set(c, i, static_cast<float>(-get(c, i)));
                    }});
  // Results that the coarser format can hold (ones and zeros, say) aren't wrong in it.
  if (Copy right(expected); 2 * moved_by_coarseness(right, tolerance) > n)
    plants.push_back({"lower precision", [=](Copy& c) {
                        for (int64_t i = 0; i < n; ++i) set(c, i, coarser(get(c, i), tolerance));
                      }});
  return plants;
}

// A plant that gives an equal result (-0 for 0, say) can't be rejected by anybody.
bool changes_something(const FieldView& expected, const FieldView& spoiled) {
  return !judge(expected, spoiled, 0).fault.empty();
}

}  // namespace

PlantReport try_plants(const std::vector<FieldView>& expected, const std::vector<FieldView>& other,
                       const std::vector<FieldView>& inputs, double tolerance, double open_ties) {
  PlantReport report;
  for (size_t f = 0; f < expected.size(); ++f) {
    const Copy right(expected[f]);
    for (const Plant& plant : plants_for(expected[f], other[f], inputs, tolerance)) {
      Copy wrong = right;
      plant.spoil(wrong);
      if (!changes_something(right.view, wrong.view)) continue;
      ++report.planted;
      if (judge(right.view, wrong.view, tolerance, open_ties).fault.empty())
        report.accepted.push_back(fmt::format("{} in '{}'", plant.name, expected[f].name));
    }
  }
  return report;
}

}  // namespace lathe
