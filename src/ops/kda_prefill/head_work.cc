#include "ops/kda_prefill/head_work.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lathe {

KdaHeadWork::KdaHeadWork(const KdaSteps& steps, const KdaLayer& layer, int tokens, Arena& arena)
    : steps(steps), layer(layer), sizes(kda_sizes(layer.k, layer.v)) {
  const int64_t keys = int64_t{tokens} * sizes.kp, kp = sizes.kp;
  block = {.q = arena.take<float>(keys),
           .k = arena.take<float>(keys),
           .g = arena.take<float>(keys),
           .v = arena.take<float>(int64_t{tokens} * sizes.vp),
           .b = arena.take<float>(tokens)};
  vectors = arena.take<KdaVectors>(tokens);
  float* decayed = arena.take<float>(3 * keys);
  for (int t = 0; t < tokens; ++t) {
    float* at = decayed + 3 * t * kp;
    vectors[t] = {at, at + kp, at + 2 * kp, 0};
  }
  taps_ = arena.take<float>(layer.heads * taps_floats());
  have_taps_.assign(layer.heads, false);
  raw_ = arena.take<const void*>(layer.width - 1 + 2 * tokens);
}

void KdaHeadWork::take_head(int h) {
  if (h == head) return;
  head = h;
  rate_ = std::exp(layer.a_log[h]);
  const float* w = layer.conv_weight.data;
  const int64_t keys = int64_t{layer.k} * layer.width, values = int64_t{layer.v} * layer.width;
  if (have_taps_[h]) return;
  have_taps_[h] = true;
  steps.taps(sizes, layer.width, w + h * keys, w + (layer.heads + h) * keys, w + 2 * layer.heads * keys + h * values,
             taps_ + h * taps_floats());
}

void KdaHeadWork::activate(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t row, int tokens) {
  const int history = layer.width - 1;
  const int64_t first = run.past + row - run.begin - history, keys = int64_t{layer.heads} * layer.k;
  const int ahead = static_cast<int>(std::min<int64_t>(tokens, run.end - row - tokens));
  for (int i = 0; i < history + tokens + ahead; ++i) {
    const int64_t position = first + i;
    if (position < 0)
      raw_[i] = nullptr;
    else if (position >= run.past)
      raw_[i] = in.qkv.at(run.begin + position - run.past);
    else
      raw_[i] = static_cast<const char*>(memory.conv.at(run.slot)) +
                position % memory.ring * layer.channels() * dtype_bytes(in.qkv.dtype);
  }
  const KdaHeadSource source{.dtype = in.qkv.dtype,
                             .tokens = tokens,
                             .width = layer.width,
                             .raw = raw_,
                             .ahead = ahead,
                             .q_at = int64_t{head} * layer.k,
                             .k_at = keys + int64_t{head} * layer.k,
                             .v_at = 2 * keys + int64_t{head} * layer.v,
                             .forget = in.forget.columns(int64_t{head} * layer.k, layer.k).at(row),
                             .forget_stride = in.forget.stride,
                             .beta = in.beta.columns(head, 1).at(row),
                             .beta_stride = in.beta.stride,
                             .taps = taps_ + head * taps_floats(),
                             .dt_bias = layer.dt_bias.data + int64_t{head} * layer.k,
                             .rate = rate_,
                             .bound = layer.bound};
  steps.activate(sizes, source, block);
}

void KdaHeadWork::decay_tokens(int n) {
  for (int t = 0; t < n; ++t) steps.vectors(sizes, block, t, vectors[t]);
}

KdaChunk take_kda_chunk(const KdaSizes& sizes, Arena& arena) {
  const int64_t rows = int64_t{kKdaChunk} * sizes.kp;
  return {.x = arena.take<float>(2 * rows),
          .keys = arena.take<float>(rows),
          .decay = arena.take<float>(sizes.kp),
          .ep = arena.take<float>(2 * kKdaChunk * kKdaChunk),
          .work = arena.take<float>(4 * rows),
          .tokens = 0};
}

void store_kda_rows(const KdaHeadWork& work, const KdaRows& in, const Rows& y, int64_t row, int rows, const float* o) {
  const int v = work.layer.v;
  const Rows gate = in.gate.columns(int64_t{work.head} * v, v), out = y.columns(int64_t{work.head} * v, v);
  for (int r = 0; r < rows; ++r)
    work.steps.gated_norm(v, y.dtype, o + int64_t{r} * work.sizes.vp, gate.at(row + r), work.layer.norm_weight.data,
                          work.layer.norm_eps, out.at(row + r));
}

void fetch_kda_rows(const KdaHeadWork& work, const KdaRows& in, const Rows& y, int64_t row, int rows) {
  const int64_t v = work.layer.v, bytes = v * dtype_bytes(y.dtype);
  for (int64_t r = row; r < row + rows; ++r)
    for (const Rows& part : {in.gate.columns(work.head * v, v), y.columns(work.head * v, v)})
      for (int64_t byte = 0; byte < bytes; byte += 64)
        __builtin_prefetch(static_cast<const char*>(part.at(r)) + byte, 0, 2);
}

void push_kda_rows(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t end, int64_t slot) {
  const int64_t bytes = in.qkv.width * dtype_bytes(in.qkv.dtype);
  for (int64_t row = std::max(run.begin, end - memory.ring); row < end; ++row)
    std::memcpy(static_cast<char*>(memory.conv.at(slot)) + (run.past + row - run.begin) % memory.ring * bytes,
                in.qkv.at(row), bytes);
}

void push_kda_head(const KdaRows& in, const KdaMemory& memory, const KdaLayer& layer, int head, int64_t row,
                   int64_t slot, int64_t position) {
  if (memory.ring == 0) return;
  const int64_t keys = int64_t{layer.heads} * layer.k, size = dtype_bytes(in.qkv.dtype);
  const char* from = static_cast<const char*>(in.qkv.at(row));
  char* to = static_cast<char*>(memory.conv.at(slot)) + position % memory.ring * layer.channels() * size;
  struct Part {
    int64_t at, count;
  };
  for (const Part& p : {Part{head * int64_t{layer.k}, layer.k}, Part{keys + head * int64_t{layer.k}, layer.k},
                        Part{2 * keys + head * int64_t{layer.v}, layer.v}})
    std::memcpy(to + p.at * size, from + p.at * size, p.count * size);
}

void zero_kda_rows(const Rows& y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) std::memset(y.at(row), 0, y.width * dtype_bytes(y.dtype));
}

FlushTinyNumbers::FlushTinyNumbers() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
FlushTinyNumbers::~FlushTinyNumbers() { _mm_setcsr(before_); }

}  // namespace lathe
