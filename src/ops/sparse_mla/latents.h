#pragma once

#include <algorithm>
#include <cmath>

#include "ops/sparse_mla/products.h"
#include "ops/sparse_mla/sparse_mla.h"

// Latents in pages: writing new ones, finding those of a set. Over a file's Lanes.

namespace lathe {
namespace {

// Where the latents of one sequence lie; divides only when it comes to another page.
template <class T>
class LatentWalk {
 public:
  LatentWalk(const SparseMlaArgs& a, int64_t sequence) : a_(a), table_(a.table.data + sequence * a.table_stride) {}

  T* at(int32_t position) {
    uint32_t in_page = static_cast<uint32_t>(position - first_);
    if (in_page >= static_cast<uint32_t>(a_.page_tokens)) {
      const int32_t page = position / a_.page_tokens;
      first_ = page * a_.page_tokens;
      data_ = static_cast<T*>(a_.pages.data) + table_[page] * a_.pages.item_size;
      in_page = static_cast<uint32_t>(position - first_);
    }
    return data_ + int64_t{in_page} * a_.latent_dim;
  }

 private:
  const SparseMlaArgs& a_;
  const int32_t* table_;
  int32_t first_ = -(1 << 30);
  T* data_ = nullptr;
};

// c = latent_norm·round(latent·rsqrt(mean(latent²) + eps)); F: dtype of the rows, T: of the pages.
template <class F, class T>
void write_latent(const SparseMlaArgs& a, const F* latent, T* to) {
  using V = Lanes::V;
  const int64_t whole = a.latent_dim / Lanes::kCount * Lanes::kCount;
  const int rest = static_cast<int>(a.latent_dim - whole);
  V square = Lanes::zero();
  for (int64_t i = 0; i < whole; i += Lanes::kCount)
    square = Lanes::fma(Lanes::load(latent + i), Lanes::load(latent + i), square);
  if (rest) square = Lanes::fma(Lanes::load(latent + whole, rest), Lanes::load(latent + whole, rest), square);
  const V r = Lanes::set(1 / std::sqrt(Lanes::sum(square) / static_cast<float>(a.latent_dim) + a.norm_eps));
  auto normed = [&](V x) {
    x = x * r;
    if constexpr (sizeof(T) == 2) x = Lanes::round_bf16(x);
    return x;
  };
  for (int64_t i = 0; i < whole; i += Lanes::kCount)
    Lanes::store(to + i, Lanes::load(a.latent_norm.data + i) * normed(Lanes::load(latent + i)));
  if (rest)
    Lanes::store(to + whole, Lanes::load(a.latent_norm.data + whole, rest) * normed(Lanes::load(latent + whole, rest)),
                 rest);
}

template <class T>
void write_latents(OpContext& ctx, const SparseMlaArgs& a) {
  constexpr int64_t kTaskRows = 32;
  for (int64_t i = 0; i < a.slot.count; ++i) {
    if (a.slot[i] < 0) continue;
    const int64_t first = a.fresh.start[i], rows = a.fresh.start[i + 1] - first;
    ctx.pool->run((rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
      LatentWalk<T> walk(a, i);
      for (int64_t r = task * kTaskRows; r < std::min(rows, (task + 1) * kTaskRows); ++r) {
        T* to = walk.at(static_cast<int32_t>(a.fresh.past[i] + r));
        if (a.latent.dtype == DType::kBF16)
          write_latent(a, static_cast<const bf16*>(a.latent.at(first + r)), to);
        else
          write_latent(a, static_cast<const float*>(a.latent.at(first + r)), to);
      }
    });
  }
}

// A row that attends: its set's size isn't 0.
struct AttendingRow {
  int64_t row, sequence;
  int count;
};

// A row of `rows` in fp32.
inline void widen_row(const Rows& rows, int64_t row, int64_t column, int64_t width, float* to) {
  auto copy = [&](auto* from) {
    int64_t i = 0;
    for (; i + Lanes::kCount <= width; i += Lanes::kCount) Lanes::store(to + i, Lanes::load(from + i));
    if (i < width)
      Lanes::store(to + i, Lanes::load(from + i, static_cast<int>(width - i)), static_cast<int>(width - i));
  };
  if (rows.dtype == DType::kBF16)
    copy(static_cast<const bf16*>(rows.at(row)) + column);
  else
    copy(static_cast<const float*>(rows.at(row)) + column);
}

inline void store_row(const Rows& rows, int64_t row, int64_t column, int64_t width, const float* from) {
  auto copy = [&](auto* to) {
    int64_t i = 0;
    for (; i + Lanes::kCount <= width; i += Lanes::kCount) Lanes::store(to + i, Lanes::load(from + i));
    if (i < width)
      Lanes::store(to + i, Lanes::load(from + i, static_cast<int>(width - i)), static_cast<int>(width - i));
  };
  if (rows.dtype == DType::kBF16)
    copy(static_cast<bf16*>(rows.at(row)) + column);
  else
    copy(static_cast<float*>(rows.at(row)) + column);
}

}  // namespace
}  // namespace lathe
