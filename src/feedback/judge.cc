#include "feedback/judge.h"

#include <cmath>
#include <cstring>

#include "ops/element.h"

namespace lathe {

namespace {

bool is_integer(DType t) { return t == DType::kI32 || t == DType::kU8; }

double value(const FieldView& f, int64_t row, int64_t i) {
  const int64_t at = row * f.stride + i;
  if (f.dtype == DType::kI32) return static_cast<const int32_t*>(f.data)[at];
  if (f.dtype == DType::kU8) return static_cast<const uint8_t*>(f.data)[at];
  const double stored = load_value(f.data, f.dtype, at);
  return f.scale ? stored * f.scale[f.block ? at / f.block : row] : stored;
}

// NaN, +inf, -inf or finite: these must agree before numbers mean anything.
int kind(double x) { return std::isnan(x) ? 3 : std::isinf(x) ? (x > 0 ? 1 : 2) : 0; }

struct Element {
  int64_t row = 0, column = 0;
  double actual = 0, expected = 0;
};

std::string describe(const FieldView& f, const Element& e) {
  return fmt::format("{}[{}, {}] is {:.7g}, the reference has {:.7g}", f.name, e.row, e.column, e.actual, e.expected);
}

template <class F>
void for_each(const FieldView& expected, const FieldView& actual, F&& f) {
  for (int64_t r = 0; r < expected.rows; ++r)
    for (int64_t i = 0; i < expected.width; ++i) f(Element{r, i, value(actual, r, i), value(expected, r, i)});
}

Judgement judge_integers(const FieldView& expected, const FieldView& actual, double open_ties) {
  int64_t different = 0;
  Element first;
  for_each(expected, actual, [&](const Element& e) {
    if (e.actual != e.expected && different++ == 0) first = e;
  });
  const double share =
      expected.elements() ? static_cast<double>(different) / static_cast<double>(expected.elements()) : 0;
  return {share, share <= open_ties
                     ? ""
                     : fmt::format("{} of {} differ; {}", different, expected.elements(), describe(expected, first))};
}

}  // namespace

Judgement judge(const FieldView& expected, const FieldView& actual, double tolerance, double open_ties) {
  if (is_integer(expected.dtype)) return judge_integers(expected, actual, open_ties);
  double error = 0, reference = 0;
  int64_t finite = 0, other_kind = 0;
  Element first_other;
  for_each(expected, actual, [&](const Element& e) {
    if (kind(e.actual) != kind(e.expected)) {
      if (other_kind++ == 0) first_other = e;
    } else if (kind(e.expected) == 0) {
      ++finite;
      error += (e.actual - e.expected) * (e.actual - e.expected);
      reference += e.expected * e.expected;
    }
  });
  if (other_kind > 0)
    return {HUGE_VAL,
            fmt::format("NaN or infinity at {} wrong places; {}", other_kind, describe(expected, first_other))};
  const double ratio = error == 0 ? 0 : std::sqrt(error / reference);
  const double rms = finite ? std::sqrt(reference / static_cast<double>(finite)) : 0;

  Element worst;
  double worst_excess = 0;
  for_each(expected, actual, [&](const Element& e) {
    if (kind(e.expected) != 0) return;
    const double excess = std::fabs(e.actual - e.expected) / (rms + std::fabs(e.expected));
    if (excess > worst_excess) worst_excess = excess, worst = e;
  });
  if (ratio > tolerance)
    return {ratio, fmt::format("error ratio {:.3g} over tolerance {:.3g}; worst: {}", ratio, tolerance,
                               describe(expected, worst))};
  if (worst_excess > kElementSlack * tolerance)
    return {ratio,
            fmt::format("error ratio {:.3g} is within {:.3g}, but {}", ratio, tolerance, describe(expected, worst))};
  return {ratio, ""};
}

int64_t first_different_row(const FieldView& a, const FieldView& b) {
  const int64_t element = dtype_bytes(a.dtype);
  for (int64_t r = 0; r < a.rows; ++r) {
    const auto at = [&](const FieldView& f) { return static_cast<const char*>(f.data) + r * f.stride * element; };
    if (std::memcmp(at(a), at(b), a.width * element) != 0) return r;
    if (a.scale && !a.block && std::memcmp(a.scale + r, b.scale + r, sizeof(float)) != 0) return r;
    const int64_t blocks = a.scale && a.block ? a.width / a.block : 0;
    if (blocks && std::memcmp(a.scale + r * blocks, b.scale + r * blocks, blocks * sizeof(float)) != 0) return r;
  }
  return -1;
}

}  // namespace lathe
