#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/index_select/paged.h"

// The indexer's writing half over a file's Lanes: LayerNorm of new keys, pools that become complete, the open ring.

namespace lathe {
namespace {

// Key and gate of one position, [2][padded dim] floats, rounded to what the pages can hold.
struct Member {
  float *key, *gate;
};

class PoolWriter {
 public:
  PoolWriter(OpContext& ctx, const IndexSelectArgs& args)
      : ctx_(ctx), a_(args), pools_{args}, padded_((args.dim + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount) {}

  // A short run of rows is one task. A long one is cut into stretches of pools, and its ring, which holds the start of
  // its first pool, is written when they are done.
  void run() {
    std::vector<Stretch> stretches, rings;
    for (int64_t i = 0; i < a_.slot.count; ++i) {
      if (a_.slot[i] < 0) continue;
      const int64_t begin = a_.fresh.past[i], rows = a_.fresh.start[i + 1] - a_.fresh.start[i], end = begin + rows;
      const bool is_short = rows <= kStretchPools * a_.kpool;
      for (int64_t p = begin / a_.kpool; (p + 1) * a_.kpool <= end && !is_short; p += kStretchPools)
        stretches.push_back({i, p, std::min(p + kStretchPools, end / a_.kpool), false});
      if (rows > 0)
        (is_short ? stretches : rings).push_back({i, begin / a_.kpool, is_short ? end / a_.kpool : 0, true});
    }
    ArenaScope scope(*ctx_.scratch);
    const int64_t size = 2 * a_.kpool * padded_;
    float* room = ctx_.scratch->take<float>(ctx_.pool->threads() * size);
    for (const std::vector<Stretch>* list : {&stretches, &rings})
      ctx_.pool->run(static_cast<int64_t>(list->size()),
                     [&](int64_t task, int worker) { write((*list)[task], room + worker * size); });
  }

 private:
  static constexpr int64_t kStretchPools = 16;

  struct Stretch {
    int64_t sequence, first_pool, end_pool;
    bool has_ring;
  };

  Member member(float* room, int64_t j) const { return {room + 2 * j * padded_, room + (2 * j + 1) * padded_}; }

  void write(const Stretch& s, float* room) const {
    const int64_t begin = a_.fresh.past[s.sequence], row0 = a_.fresh.start[s.sequence],
                  end = begin + a_.fresh.start[s.sequence + 1] - row0;
    const int64_t slot = a_.slot[s.sequence];
    for (int64_t p = s.first_pool; p < s.end_pool; ++p) {
      for (int64_t j = 0; j < a_.kpool; ++j) {
        const int64_t t = p * a_.kpool + j;
        if (t < begin)
          read_kept(slot, t, member(room, j));
        else
          read_fresh(row0 + t - begin, member(room, j));
      }
      if (a_.pages.dtype == DType::kBF16)
        store_pool(static_cast<bf16*>(a_.pages.data) + pools_.offset(s.sequence, p), room);
      else
        store_pool(static_cast<float*>(a_.pages.data) + pools_.offset(s.sequence, p), room);
    }
    if (!s.has_ring) return;
    for (int64_t t = std::max(begin, end - a_.ring); t < end; ++t) {
      const Member m = member(room, 0);
      read_fresh(row0 + t - begin, m);
      if (a_.open.dtype == DType::kBF16)
        store_kept(a_.open.b16(slot) + t % a_.ring * 2 * a_.dim, m);
      else
        store_kept(a_.open.f32(slot) + t % a_.ring * 2 * a_.dim, m);
    }
  }

  // f(i, n) for each vector of a row: values [i, i + n), n = kCount but for the last.
  template <class F>
  void each_vector(F f) const {
    for (int i = 0; i < a_.dim; i += Lanes::kCount) f(i, std::min(Lanes::kCount, a_.dim - i));
  }

  template <class T>
  void widen(const T* from, float* to) const {
    each_vector([&](int i, int n) {
      Lanes::store(to + i, n == Lanes::kCount ? Lanes::load(from + i) : Lanes::load(from + i, n));
    });
  }

  void widen(const void* data, DType dtype, int64_t offset, float* to) const {
    if (dtype == DType::kBF16)
      widen(static_cast<const bf16*>(data) + offset, to);
    else
      widen(static_cast<const float*>(data) + offset, to);
  }

  Lanes::V rounded(Lanes::V v) const { return a_.pages.dtype == DType::kBF16 ? Lanes::round_bf16(v) : v; }

  void read_kept(int64_t slot, int64_t t, Member m) const {
    const int64_t offset = slot * a_.open.item_size + t % a_.ring * 2 * a_.dim;
    widen(a_.open.data, a_.open.dtype, offset, m.key);
    widen(a_.open.data, a_.open.dtype, offset + a_.dim, m.gate);
  }

  void read_fresh(int64_t row, Member m) const {
    using V = Lanes::V;
    widen(a_.gate.data, a_.gate.dtype, row * a_.gate.stride, m.gate);
    each_vector([&](int i, int) { Lanes::store(m.gate + i, rounded(Lanes::load(m.gate + i))); });
    widen(a_.key.data, a_.key.dtype, row * a_.key.stride, m.key);
    V sum = Lanes::zero();  // the padding is zero
    each_vector([&](int i, int) { sum = sum + Lanes::load(m.key + i); });
    const V mean = Lanes::set(Lanes::sum(sum) / static_cast<float>(a_.dim));
    V square = Lanes::zero();
    each_vector([&](int i, int n) {
      V d = Lanes::load(m.key + i) - mean;
      if (n < Lanes::kCount)
        Lanes::store(m.key + i, d), d = Lanes::load(m.key + i, n);
      else
        Lanes::store(m.key + i, d);
      square = Lanes::fma(d, d, square);
    });
    const V r = Lanes::set(1 / std::sqrt(Lanes::sum(square) / static_cast<float>(a_.dim) + a_.key_norm_eps));
    each_vector([&](int i, int n) {
      const bool whole = n == Lanes::kCount;
      const V w = whole ? Lanes::load(a_.key_norm_weight.data + i) : Lanes::load(a_.key_norm_weight.data + i, n);
      const V b = whole ? Lanes::load(a_.key_norm_bias.data + i) : Lanes::load(a_.key_norm_bias.data + i, n);
      Lanes::store(m.key + i, rounded(Lanes::fma(w, Lanes::load(m.key + i) * r, b)));
    });
  }

  template <class T>
  void store_kept(T* to, Member m) const {
    each_vector([&](int i, int n) {
      Lanes::store(to + i, Lanes::load(m.key + i), n), Lanes::store(to + a_.dim + i, Lanes::load(m.gate + i), n);
    });
  }

  template <class T>
  void store_pool(T* to, float* room) const {
    using V = Lanes::V;
    each_vector([&](int i, int n) {
      auto logit = [&](int64_t j) {
        const float* ape = a_.ape.data + j * a_.dim + i;
        return Lanes::load(member(room, j).gate + i) + (n == Lanes::kCount ? Lanes::load(ape) : Lanes::load(ape, n));
      };
      V top = logit(0), sum = Lanes::zero(), key = Lanes::zero();
      for (int64_t j = 1; j < a_.kpool; ++j) top = Lanes::max(top, logit(j));
      for (int64_t j = 0; j < a_.kpool; ++j) {
        const V alpha = Lanes::exp(logit(j) - top);
        sum = sum + alpha;
        key = Lanes::fma(alpha, Lanes::load(member(room, j).key + i), key);
      }
      Lanes::store(to + i, key / sum, n);
    });
  }

  OpContext& ctx_;
  const IndexSelectArgs& a_;
  const PagedPools pools_;
  const int64_t padded_;
};

}  // namespace
}  // namespace lathe
