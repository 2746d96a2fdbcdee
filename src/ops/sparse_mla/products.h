#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bf16.h"

// The two matrix products of latent attention over a file's Lanes. One side is fp32; the other, latents or kv_b, is
// read where it lies, f32 or bf16, and widened in registers. On the machines we know an fp32 FMA takes as many bf16
// values a cycle as the bf16 dot instruction or more, and it rounds nothing.
//
// A step is 2·kCount values: two vectors in order, or of bf16 those at even and at odd places. Every output is summed
// in one order, whatever tile it falls into: so its bits don't depend on what else is computed with it.

namespace lathe {
namespace {

constexpr int kStep = 2 * Lanes::kCount;

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

inline void load_step(const float* p, Lanes::V& a, Lanes::V& b) {
  a = Lanes::load(p), b = Lanes::load(p + Lanes::kCount);
}
inline void load_step(const bf16* p, Lanes::V& a, Lanes::V& b) { Lanes::split(p, a, b); }
// The first n < kStep values, then zeroes.
inline void load_step(const float* p, int n, Lanes::V& a, Lanes::V& b) {
  a = n < Lanes::kCount ? Lanes::load(p, n) : Lanes::load(p);
  b = n > Lanes::kCount ? Lanes::load(p + Lanes::kCount, n - Lanes::kCount) : Lanes::zero();
}
inline void load_step(const bf16* p, int n, Lanes::V& a, Lanes::V& b) { Lanes::split(p, n, a, b); }

// A step of values in order, as the step of a T.
template <class T>
void arrange_step(Lanes::V&, Lanes::V&) {}
template <>
inline void arrange_step<bf16>(Lanes::V& a, Lanes::V& b) {
  Lanes::V even, odd;
  Lanes::deinterleave(a, b, even, odd);
  a = even, b = odd;
}
// And back.
template <class T>
void restore_step(Lanes::V&, Lanes::V&) {}
template <>
inline void restore_step<bf16>(Lanes::V& a, Lanes::V& b) {
  Lanes::V first, second;
  Lanes::interleave(a, b, first, second);
  a = first, b = second;
}

// ---- out[r][i] = keep[r]·out[r][i] + sum over k of a(r, k)·row(k)[i]

// fp32 numbers a(r, k), wherever they are.
struct Factors {
  const float* data;
  int64_t row, step;  // from r to r + 1, from k to k + 1
};

// Rows of a matrix, read from memory.
template <class T>
struct Strided {
  static constexpr bool kFetch = true;
  const T* data;
  int64_t stride;
  const T* operator()(int64_t k) const { return data + k * stride; }
};
// Rows that a list points to, read a moment before.
template <class T>
struct Listed {
  static constexpr bool kFetch = false;
  const T* const* list;
  const T* operator()(int64_t k) const { return list[k]; }
};

constexpr int64_t kAheadRows = 8;

// One row of the output, of whole steps: the sums lie in `out`, a step arranged as one of a T, so that memory is read
// in its order. The sums and their order are those of mix_tile.
template <class T, class RowOf>
void mix_row(Factors a, int64_t count, RowOf row, int64_t width, float* out) {
  using V = Lanes::V;
  std::fill_n(out, width, 0.0f);
  auto add = [&]<int kTogether>(int64_t k) {
    const T *from[kTogether], *next = row(std::min(k + kAheadRows, count - 1));
    V factor[kTogether];
    for (int j = 0; j < kTogether; ++j) from[j] = row(k + j), factor[j] = Lanes::set(a.data[(k + j) * a.step]);
    for (int64_t i = 0; i < width; i += kStep) {
      for (size_t byte = 0; byte < kTogether * kStep * sizeof(T); byte += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(next + kTogether * i) + byte);
      V x = Lanes::load(out + i), y = Lanes::load(out + i + Lanes::kCount), b[2];
#pragma GCC unroll 4
      for (int j = 0; j < kTogether; ++j) {
        load_step(from[j] + i, b[0], b[1]);
        x = Lanes::fma(factor[j], b[0], x), y = Lanes::fma(factor[j], b[1], y);
      }
      Lanes::store(out + i, x), Lanes::store(out + i + Lanes::kCount, y);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) add.template operator()<4>(k);
  for (; k < count; ++k) add.template operator()<1>(k);
  for (int64_t i = 0; i < width; i += kStep) {
    V x = Lanes::load(out + i), y = Lanes::load(out + i + Lanes::kCount);
    restore_step<T>(x, y);
    Lanes::store(out + i, x), Lanes::store(out + i + Lanes::kCount, y);
  }
}

// kRows x kSteps steps of the output; n: values of a step that isn't whole, else kStep. keep null: 0.
template <class T, int kRows, int kSteps, class RowOf>
void mix_tile(Factors a, int64_t count, RowOf row, int64_t column, int n, float* out, int64_t stride,
              const float* keep) {
  using V = Lanes::V;
  V sum[kRows][2 * kSteps];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int s = 0; s < 2 * kSteps; ++s) sum[r][s] = Lanes::zero();
  auto pass = [&](auto load) {
    for (int64_t k = 0; k < count; ++k) {
      const T* from = row(k) + column;
      if constexpr (RowOf::kFetch && kRows <= 2)  // little work a byte
        if (k + kAheadRows < count)
          for (size_t i = 0; i < kSteps * kStep * sizeof(T); i += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(row(k + kAheadRows) + column) + i);
      V b[2 * kSteps];
#pragma GCC unroll 16
      for (int s = 0; s < kSteps; ++s) load(from + s * kStep, b[2 * s], b[2 * s + 1]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V factor = Lanes::set(a.data[r * a.row + k * a.step]);
#pragma GCC unroll 16
        for (int s = 0; s < 2 * kSteps; ++s) sum[r][s] = Lanes::fma(factor, b[s], sum[r][s]);
      }
    }
  };
  if (n == kStep)
    pass([](const T* p, V& x, V& y) { load_step(p, x, y); });
  else
    pass([n](const T* p, V& x, V& y) { load_step(p, n, x, y); });
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int s = 0; s < kSteps; ++s) {
      V x = sum[r][2 * s], y = sum[r][2 * s + 1];
      restore_step<T>(x, y);
      float* to = out + r * stride + column + s * kStep;
      const int first = std::min(n, Lanes::kCount), second = n - first;
      if (keep) x = Lanes::fma(Lanes::set(keep[r]), Lanes::load(to, first), x);
      Lanes::store(to, x, first);
      if (second == 0) continue;
      if (keep) y = Lanes::fma(Lanes::set(keep[r]), Lanes::load(to + Lanes::kCount, second), y);
      Lanes::store(to + Lanes::kCount, y, second);
    }
}

// One group of rows: as many steps at once as leave registers for kRows·kSteps·2 sums.
template <class T, int kRows, class RowOf>
void mix_rows(Factors a, int64_t count, RowOf row, int64_t width, float* out, int64_t stride, const float* keep) {
  constexpr int kSums = Lanes::kCount == 16 ? 24 : 12;
  constexpr int kSteps = std::max(1, std::min(8, kSums / (2 * kRows)));
  int64_t i = 0;
  for (; i + kSteps * kStep <= width; i += kSteps * kStep)
    mix_tile<T, kRows, kSteps>(a, count, row, i, kStep, out, stride, keep);
  for (; i < width; i += kStep)
    mix_tile<T, kRows, 1>(a, count, row, i, static_cast<int>(std::min<int64_t>(kStep, width - i)), out, stride, keep);
}

// row: Strided or Listed, rows of `width` values.
template <class T, class RowOf>
void mix(Factors a, int64_t rows, int64_t count, RowOf row, int64_t width, float* out, int64_t stride,
         const float* keep) {
  auto group = [&]<int kRows>() {
    for (; rows >= kRows; rows -= kRows) {
      mix_rows<T, kRows>(a, count, row, width, out, stride, keep);
      a.data += kRows * a.row, out += kRows * stride;
      if (keep) keep += kRows;
    }
  };
  if (RowOf::kFetch && rows == 1 && !keep && width % kStep == 0) return mix_row<T>(a, count, row, width, out);
  if constexpr (Lanes::kCount == 16) group.template operator()<12>(), group.template operator()<8>();
  if constexpr (Lanes::kCount >= 8) group.template operator()<6>();
  group.template operator()<4>(), group.template operator()<2>(), group.template operator()<1>();
}

// ---- out[r·out_row + c·out_column] = a[r]·b[c]

// Rows that dot() multiplies by rows of a T: fp32, each vector arranged as one of a T, padded with zeroes to whole
// steps. They lie in groups that one tile takes, [group][vector][row of group][lane]: the tile walks one pointer.
struct Packed {
  static constexpr int kMost = Lanes::kCount == 16 ? 8 : 4;

  float* data;
  int64_t rows, width;  // width: a multiple of kStep

  // Rows of the group that begins at row r: 8 while there are, then 4, then 1.
  static int64_t group(int64_t rows, int64_t r) { return rows - r >= kMost ? kMost : rows - r >= 4 ? 4 : 1; }

  // Where row r's first vector lies, and how far the next one.
  struct Row {
    float* data;
    int64_t step;
  };
  Row row(int64_t r) const {
    int64_t first = r / kMost * kMost;
    if (rows - first < kMost && rows - first >= 4 && r - first >= 4) first += 4;
    if (rows - first < 4) first = r;
    const int64_t size = group(rows, first);
    return {data + first * width + (r - first) * Lanes::kCount, size * Lanes::kCount};
  }
};

// Row r of `to` = factor·from, `count` values in order.
template <class T>
void pack(const float* from, int64_t count, float factor, const Packed& to, int64_t r) {
  Packed::Row row = to.row(r);
  for (int64_t i = 0; i < to.width; i += kStep, row.data += 2 * row.step) {
    Lanes::V a = Lanes::zero(), b = Lanes::zero();
    if (i + kStep <= count)
      load_step(from + i, a, b);
    else if (i < count)
      load_step(from + i, static_cast<int>(count - i), a, b);
    a = a * Lanes::set(factor), b = b * Lanes::set(factor);
    arrange_step<T>(a, b);
    Lanes::store(row.data, a), Lanes::store(row.data + row.step, b);
  }
}

struct Placed {
  float* data;
  int64_t row, column;
};

// a: a group of kRows packed rows. b: kColumns rows of T. ahead: rows b[c + ahead] are asked for.
template <class T, int kRows, int kColumns>
void dot_tile(const float* a, const T* const* b, int64_t width, int ahead, Placed out) {
  using V = Lanes::V;
  V sum[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) sum[r][c] = Lanes::zero();
  // One vector of a step at a time, though it is loaded twice: both at once would leave too few registers.
  auto half_step = [&](auto load) {
    V column[kColumns];
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) column[c] = load(c);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V x = Lanes::pinned(Lanes::load(a + r * Lanes::kCount));
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) sum[r][c] = Lanes::fma(x, column[c], sum[r][c]);
    }
    a += kRows * Lanes::kCount;
  };
  auto step = [&](int64_t i, auto load) {
    half_step([&](int c) {
      V x, y;
      load(b[c] + i, x, y);
      return x;
    });
    half_step([&](int c) {
      V x, y;
      load(b[c] + i, x, y);
      return y;
    });
  };
  const int64_t whole = width / kStep * kStep;
  // Rows that lie without gaps are fetched in the order of addresses, which memory likes best.
  const bool together = ahead && b[ahead + kColumns - 1] - b[ahead] == (kColumns - 1) * width;
  for (int64_t i = 0; i < whole; i += kStep) {
    constexpr size_t kBytes = kStep * sizeof(T), kLine = 64;
    if (together)
#pragma GCC unroll 16
      for (size_t byte = 0; byte < kColumns * kBytes; byte += kLine)
        __builtin_prefetch(reinterpret_cast<const char*>(b[ahead] + i * kColumns) + byte);
    else if (ahead && i * sizeof(T) % kLine == 0)
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) __builtin_prefetch(b[c + ahead] + i);
    step(i, [](const T* p, V& x, V& y) { load_step(p, x, y); });
  }
  if (whole < width) step(whole, [&](const T* p, V& x, V& y) { load_step(p, static_cast<int>(width - whole), x, y); });
  float sums[4];
  if constexpr (kRows % 4 == 0) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r += 4) {
        float* to = out.data + r * out.row + c * out.column;
        Lanes::sum4({sum[r][c], sum[r + 1][c], sum[r + 2][c], sum[r + 3][c]}, out.row == 1 ? to : sums);
        for (int j = 0; j < 4 && out.row != 1; ++j) to[j * out.row] = sums[j];
      }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; c += 4) {
        constexpr int kHere = std::min(4, kColumns);
        static_assert(kColumns % kHere == 0);
        V four[4] = {};
        for (int j = 0; j < kHere; ++j) four[j] = sum[r][c + j];
        Lanes::sum4(four, sums);
        for (int j = 0; j < kHere; ++j) out.data[r * out.row + (c + j) * out.column] = sums[j];
      }
  }
}

template <class T, int kRows, int kColumns>
void dot_rows(const float* a, int64_t columns, const T* const* b, int64_t width, int ahead, Placed out) {
  const int64_t tiles = columns / kColumns, rest = columns % kColumns;
  auto from = [&](int64_t c) { return Placed{out.data + c * out.column, out.row, out.column}; };
  for (int64_t t = 0; t < tiles; ++t)
    dot_tile<T, kRows, kColumns>(a, b + t * kColumns, width, ahead, from(t * kColumns));
  for (int64_t c = columns - rest; c < columns; ++c) dot_tile<T, kRows, 1>(a, b + c, width, ahead, from(c));
}

// Rows b[c] have `width` values. ahead > 0: b has that many entries more, and is read for the first time.
template <class T>
void dot(const Packed& a, int64_t columns, const T* const* b, int64_t width, int ahead, Placed out) {
  for (int64_t r = 0, size; r < a.rows; r += size, ahead = 0) {
    size = Packed::group(a.rows, r);
    const float* group = a.data + r * a.width;
    const Placed to{out.data + r * out.row, out.row, out.column};
    if constexpr (Packed::kMost == 8) {
      if (size == 8)
        dot_rows<T, 8, 3>(group, columns, b, width, ahead, to);
      else if (size == 4)
        dot_rows<T, 4, 4>(group, columns, b, width, ahead, to);
    } else if (size == 4) {
      dot_rows<T, 4, 3>(group, columns, b, width, ahead, to);
    }
    if (size == 1) dot_rows<T, 1, 8>(group, columns, b, width, ahead, to);
  }
}

}  // namespace
}  // namespace lathe
