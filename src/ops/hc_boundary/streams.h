#pragma once

#include <cmath>
#include <cstdint>

#include "base/view.h"

// What happens to a row of streams at any boundary, written over a file's Lanes (ops/lanes_*.h, which it includes
// first): the mix that ends a site, and the norm that begins the next. For hc_boundary and hc_head.

namespace lathe {
namespace {

// More copies than that go to the reference.
constexpr int kMaxCopies = 8;

template <class T>
T* row_of(const Rows& r, int64_t row) {
  return static_cast<T*>(r.data) + row * r.stride;
}

// f(float{}) or f(bf16{}): a dtype becomes a type, once a row.
template <class F>
auto with_type(DType t, F&& f) {
  return t == DType::kBF16 ? f(bf16{}) : f(float{});
}

// X'[s][i] for channels [begin, end) of one row; T and Y are the dtypes of streams and y. The new streams also go to
// `floats`, [copies][step] from channel `begin`, padded with zeroes to whole vectors, if that isn't null. Returns X'²
// summed by lane. y null: the streams stay. kCopies 0: any number, else `copies` is that.
template <int kCopies, class T, class Y>
Lanes::V mix_streams(int copies, int64_t hidden, int64_t begin, int64_t end, const float* post, const float* comb,
                     const T* streams, const Y* y, T* out, float* floats, int64_t step) {
  using V = Lanes::V;
  if constexpr (kCopies > 0) copies = kCopies;
  V square = Lanes::zero();
  for (int64_t i = begin; i < end; i += Lanes::kCount) {
    const int n = static_cast<int>(end - i < Lanes::kCount ? end - i : Lanes::kCount);
    const bool whole = n == Lanes::kCount;
    V old[kCopies > 0 ? kCopies : kMaxCopies], sublayer = Lanes::zero();
    for (int s = 0; s < copies; ++s)
      old[s] = whole ? Lanes::load(streams + s * hidden + i) : Lanes::load(streams + s * hidden + i, n);
    if (y) sublayer = whole ? Lanes::load(y + i) : Lanes::load(y + i, n);
    for (int s = 0; s < copies; ++s) {
      V x = old[s];
      if (y) {
        x = Lanes::set(post[s]) * sublayer;
        for (int j = 0; j < copies; ++j) x = Lanes::fma(Lanes::set(comb[j * copies + s]), old[j], x);
        if constexpr (sizeof(T) == 2) x = Lanes::round_bf16(x);
      }
      if (whole)
        Lanes::store_rounded(out + s * hidden + i, x);
      else
        Lanes::store(out + s * hidden + i, x, n);
      if (floats) Lanes::store(floats + s * step + (i - begin), x);
      square = Lanes::fma(x, x, square);
    }
  }
  return square;
}

// The same for row `row` of views. post, comb: that row's.
inline Lanes::V mix_row(int copies, const Rows& streams, const Rows& y, const Rows& out, int64_t row, int64_t begin,
                        int64_t end, const float* post, const float* comb, float* floats, int64_t step) {
  const int64_t hidden = out.width / copies;
  return with_type(out.dtype, [&](auto t) {
    using T = decltype(t);
    return with_type(y.empty() ? out.dtype : y.dtype, [&](auto of_y) {
      using Y = decltype(of_y);
      const Y* sublayer = y.empty() ? nullptr : row_of<const Y>(y, row);
      auto mix = copies == 4 ? mix_streams<4, T, Y> : mix_streams<0, T, Y>;
      return mix(copies, hidden, begin, end, post, comb, row_of<const T>(streams, row), sublayer, row_of<T>(out, row),
                 floats, step);
    });
  });
}

// u = weight·v·rsqrt(mean(v²) + eps), v[i] = sum_s share[s]·X[s][i]; `v` is room for a padded row.
template <int kCopies, class T, class U>
void collapse_and_norm(int copies, int64_t hidden, const float* share, const T* streams, const float* weight, float eps,
                       float* v, U* u) {
  using V = Lanes::V;
  if constexpr (kCopies > 0) copies = kCopies;
  V square = Lanes::zero();
  for (int64_t i = 0; i < hidden; i += Lanes::kCount) {
    const int n = static_cast<int>(hidden - i < Lanes::kCount ? hidden - i : Lanes::kCount);
    V sum = Lanes::zero();
    for (int s = 0; s < copies; ++s) {
      const T* x = streams + s * hidden + i;
      sum = Lanes::fma(Lanes::set(share[s]), n == Lanes::kCount ? Lanes::load(x) : Lanes::load(x, n), sum);
    }
    Lanes::store(v + i, sum);
    square = Lanes::fma(sum, sum, square);
  }
  const V r = Lanes::set(1 / std::sqrt(Lanes::sum(square) / static_cast<float>(hidden) + eps));
  for (int64_t i = 0; i < hidden; i += Lanes::kCount) {
    const int n = static_cast<int>(hidden - i < Lanes::kCount ? hidden - i : Lanes::kCount);
    const V x = Lanes::load(v + i) * r;
    if (n == Lanes::kCount)
      Lanes::store(u + i, Lanes::load(weight + i) * x);
    else
      Lanes::store(u + i, Lanes::load(weight + i, n) * x, n);
  }
}

inline void collapse_row(int copies, const Rows& streams, const float* share, const float* weight, float eps, float* v,
                         const Rows& u, int64_t row) {
  with_type(streams.dtype, [&](auto t) {
    using T = decltype(t);
    return with_type(u.dtype, [&](auto of_u) {
      using U = decltype(of_u);
      auto collapse = copies == 4 ? collapse_and_norm<4, T, U> : collapse_and_norm<0, T, U>;
      return collapse(copies, u.width, share, row_of<const T>(streams, row), weight, eps, v, row_of<U>(u, row));
    });
  });
}

}  // namespace
}  // namespace lathe
