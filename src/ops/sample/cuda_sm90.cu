#include <climits>

#include "ops/cuda_kernel.cuh"
#include "ops/sample/variants.h"

// A block a row. Nothing is sorted: whatever cuts the order of falling logits (a count, a sum, the draw) is found by a
// descent over the bits of the logits' order, a byte a pass. Weights are summed as integers of 2^-45, so that a sum doesn't
// depend on the order of its terms.
namespace lathe::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr double kOne = 35184372088832.0;  // 2^45: a weight of 1
using Mass = unsigned long long;

// Unsigned integers in the order of the numbers.
__device__ unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 and 0 are one number
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float number_of(unsigned order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

__device__ bool is_candidate(float x) { return !isnan(x) && x > -INFINITY; }

__device__ double uniform_draw(uint64_t seed, int32_t position) {  // as in ops/sample/draw.h
  auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  };
  const uint64_t hash =
      mix(mix(seed + 0x9e3779b97f4a7c15ull) + (uint64_t{static_cast<uint32_t>(position)} + 1) * 0x9e3779b97f4a7c15ull);
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

__device__ float edited(float logit, const LogitEdit& edit, const Penalties& p) {  // as in ops/sample/edit.h
  if (edit.seen) logit = logit > 0 ? logit / p.repetition : logit * p.repetition;
  if (edit.count > 0)
    logit = __fsub_rn(__fsub_rn(logit, __fmul_rn(p.frequency, static_cast<float>(edit.count))), p.presence);
  return logit + edit.bias;
}

// A point in the order of falling logits, ties by id: behind the first `ties` of those that have `order`.
struct Cut {
  unsigned order;
  int ties;
};

// Logits of a row as they are drawn from, and what has been cut off.
struct RowOrder {
  const float* logits;
  int vocab;
  float top;
  double temperature;
  Cut end;

  __device__ double weight(float x) const { return exp((static_cast<double>(x) - top) / temperature); }
  __device__ Mass mass(float x) const { return static_cast<Mass>(weight(x) * kOne); }

  // The sum of what is left. Mass of a tie counts `ties` times.
  __device__ Mass total(Mass* space) const {
    Mass sum = 0;
    for (int i = threadIdx.x; i < vocab; i += kThreads)
      if (is_candidate(logits[i]) && order_of(logits[i]) > end.order) sum += mass(logits[i]);
    return block_reduce(sum, space, [](Mass a, Mass b) { return a + b; }) + end.ties * mass(number_of(end.order));
  }

  // Behind the candidate with which the count (kCount) or the sum of what is left reaches `wanted` >= 1; never further
  // than `end`.
  template <bool kCount>
  __device__ Cut reach(Mass wanted) const {
    __shared__ Mass histogram[256];
    __shared__ unsigned prefix;
    __shared__ Mass left;
    __syncthreads();
    if (threadIdx.x == 0) prefix = 0, left = wanted;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = threadIdx.x; i < 256; i += kThreads) histogram[i] = 0;
      __syncthreads();
      const unsigned high = prefix;
      for (int i = threadIdx.x; i < vocab; i += kThreads) {
        const float x = logits[i];
        const unsigned order = order_of(x);
        if (is_candidate(x) && order >= end.order && (shift == 24 || order >> (shift + 8) == high))
          atomicAdd(&histogram[order >> shift & 255], kCount ? Mass{1} : mass(x));
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        // Not below `end`, where nothing was counted.
        const int least = end.order >> (shift + 7) >> 1 == high ? static_cast<int>(end.order >> shift & 255) : 0;
        int digit = 255;
        Mass above = 0;
        while (digit > least && above + histogram[digit] < left) above += histogram[digit--];
        left -= above;
        prefix = high << 8 | static_cast<unsigned>(digit);
      }
      __syncthreads();
    }
    Cut cut{prefix, INT_MAX};
    const Mass each = kCount ? 1 : mass(number_of(cut.order));
    if (each > 0) cut.ties = static_cast<int>(min((left + each - 1) / each, Mass{INT_MAX}));
    if (cut.order == end.order) cut.ties = min(cut.ties, end.ties);
    return cut;
  }

  // The id of the tie with which the cut ends: the ties-th, or the last there is, of those with its order.
  __device__ int id_of(const Cut& cut, int* space) const {
    __shared__ int found, last;
    __syncthreads();
    if (threadIdx.x == 0) found = -1, last = -1;
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int before = 0;
    for (int begin = 0; begin < vocab && found < 0; begin += kThreads) {
      const int i = begin + static_cast<int>(threadIdx.x);
      const bool tie = i < vocab && is_candidate(logits[i]) && order_of(logits[i]) == cut.order;
      const unsigned votes = __ballot_sync(kAllLanes, tie);
      if (lane == 0) space[warp] = __popc(votes);
      __syncthreads();
      int mine = before + __popc(votes & ((1u << lane) - 1)), all = before;
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w < warp) mine += space[w];
        all += space[w];
      }
      if (tie && mine + 1 == cut.ties) found = i;
      if (tie && mine + 1 == all) last = i;
      before = all;
      __syncthreads();
    }
    __syncthreads();
    return found >= 0 ? found : last;
  }
};

struct Greatest {
  float value;
  int id;
};

// The greatest candidate that ranks behind `after` (order, id), or of all.
__device__ Greatest next_greatest(const float* logits, int vocab, bool all, unsigned after, int after_id, Mass* space) {
  Mass best = 0;  // order in front, then lower ids first; 0: none
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const float x = logits[i];
    if (!is_candidate(x)) continue;
    const unsigned order = order_of(x);
    if (!all && (order > after || (order == after && i <= after_id))) continue;
    best = max(best, Mass{order} << 32 | static_cast<unsigned>(INT_MAX - i));
  }
  best = block_reduce(best, space, [](Mass a, Mass b) { return max(a, b); });
  if (best == 0) return {-INFINITY, -1};
  const int id = INT_MAX - static_cast<int>(best & 0xffffffffu);
  return {logits[id], id};
}

__device__ int draw(const float* logits, int vocab, const SampleSettings& s, int32_t position, Mass* space) {
  const Greatest top = next_greatest(logits, vocab, true, 0, 0, space);
  int finite = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) finite |= isfinite(logits[i]);
  finite = __syncthreads_or(finite);
  if (!finite) return -1;
  if (!(s.temperature > 0) || isinf(top.value)) return top.id;
  RowOrder row{logits, vocab, top.value, s.temperature, {0, INT_MAX}};
  row.end.order = order_of(-INFINITY) + 1, row.end.ties = 0;  // what lies at -inf isn't a candidate
  if (s.top_k > 0 && s.top_k < vocab) row.end = row.reach<true>(s.top_k);
  if (s.top_p < 1) {
    const double least = static_cast<double>(s.top_p) * static_cast<double>(row.total(space));
    row.end = row.reach<false>(least > 1 ? static_cast<Mass>(ceil(least)) : 1);
  }
  if (s.min_p > 1) {  // the greatest always stays
    row.end = {order_of(top.value), 1};
  } else if (s.min_p > 0) {
    unsigned lowest = order_of(top.value);
    for (int i = threadIdx.x; i < vocab; i += kThreads)
      if (is_candidate(logits[i]) && !(row.weight(logits[i]) < s.min_p)) lowest = min(lowest, order_of(logits[i]));
    const unsigned least =
        block_reduce(lowest, reinterpret_cast<unsigned*>(space), [](unsigned a, unsigned b) { return min(a, b); });
    if (least > row.end.order) row.end = {least, INT_MAX};
  }
  // How many ties there are at the end, where all of them stay.
  if (row.end.ties == INT_MAX) {
    int ties = 0;
    for (int i = threadIdx.x; i < vocab; i += kThreads)
      ties += is_candidate(logits[i]) && order_of(logits[i]) == row.end.order;
    row.end.ties = block_sum(ties, reinterpret_cast<int*>(space));
  }
  const Mass total = row.total(space);
  const double target = uniform_draw(s.seed, position) * static_cast<double>(total);
  return row.id_of(row.reach<false>(min(static_cast<Mass>(target) + 1, total)), reinterpret_cast<int*>(space));
}

// The model's own log probabilities of the taken token and of the best ones.
__device__ void write_logprobs(const SampleArgs& a, int64_t row, const float* logits, int token, Mass* space) {
  const int wanted = a.best_wanted[row], width = a.best_width;
  if (threadIdx.x == 0) a.logprob[row] = 0, a.rank[row] = 0;
  for (int i = threadIdx.x; i < width; i += kThreads) a.best_token[row * width + i] = -1, a.best_logprob[row * width + i] = 0;
  if (wanted < 0 || token < 0) return;
  __syncthreads();
  const Greatest top = next_greatest(logits, a.vocab, true, 0, 0, space);
  double sum = 0;
  for (int i = threadIdx.x; i < a.vocab; i += kThreads)
    if (is_candidate(logits[i])) sum += exp(static_cast<double>(logits[i]) - top.value);
  sum = block_reduce(sum, reinterpret_cast<double*>(space), [](double x, double y) { return x + y; });
  const double log_sum = log(sum);
  auto logprob = [&](float x) -> float {
    if (isinf(top.value)) return x == top.value ? 0 : -INFINITY;
    return isnan(x) ? -INFINITY : static_cast<float>(static_cast<double>(x) - top.value - log_sum);
  };
  const float taken = isnan(logits[token]) ? -INFINITY : logits[token];
  int before = 0;
  for (int i = threadIdx.x; i < a.vocab; i += kThreads)
    before += i < token ? logits[i] >= taken : i > token && logits[i] > taken;
  before = block_sum(before, reinterpret_cast<int*>(space));
  if (threadIdx.x == 0) a.logprob[row] = logprob(logits[token]), a.rank[row] = before + 1;
  unsigned order = 0;
  int id = 0;
  for (int i = 0; i < wanted && i < width; ++i) {
    const Greatest next = next_greatest(logits, a.vocab, i == 0, order, id, space);
    if (next.id < 0) break;
    order = order_of(next.value), id = next.id;
    if (threadIdx.x == 0) a.best_token[row * width + i] = id, a.best_logprob[row * width + i] = logprob(next.value);
  }
}

__global__ void __launch_bounds__(kThreads) sample_kernel(SampleArgs a, float* copies) {
  __shared__ Mass space[32];
  const int64_t row = blockIdx.x;
  const float* logits =
      static_cast<const float*>(a.logits.data) + (a.logit_row.empty() ? row : a.logit_row[row]) * a.logits.stride;
  int token = a.given.empty() ? -1 : a.given[row];
  if (token < 0) {
    const float* drawn_from = logits;
    const int mask = a.mask.empty() ? -1 : a.mask[row];
    const int begin = a.edit_start.empty() ? 0 : a.edit_start[row], end = a.edit_start.empty() ? 0 : a.edit_start[row + 1];
    if (mask >= 0 || begin < end) {
      float* copy = copies + row * a.vocab;
      const int64_t words = (a.vocab + 31) / 32;
      for (int i = threadIdx.x; i < a.vocab; i += kThreads)
        copy[i] = mask < 0 || a.allowed[mask * words + i / 32] >> (i % 32) & 1 ? logits[i] : -INFINITY;
      __syncthreads();
      for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
        const int id = a.edits[i].token;
        if (mask < 0 || a.allowed[mask * words + id / 32] >> (id % 32) & 1)
          copy[id] = edited(logits[id], a.edits[i], a.penalties[row]);
      }
      __syncthreads();
      drawn_from = copy;
    }
    token = draw(drawn_from, a.vocab, a.settings[row], a.position[row], space);
  }
  if (threadIdx.x == 0) a.token[row] = token;
  if (!a.best_wanted.empty()) write_logprobs(a, row, logits, token, space);
}

}  // namespace

Status sample(OpContext& ctx, const SampleArgs& a) {
  if (a.rows() == 0) return Status::ok();
  ArenaScope scope(*ctx.scratch);
  const bool edits = !a.mask.empty() || !a.edit_start.empty();
  float* copies = edits ? ctx.scratch->take<float>(a.rows() * a.vocab) : nullptr;
  sample_kernel<<<static_cast<unsigned>(a.rows()), kThreads, 0, stream_of(ctx)>>>(a, copies);
  return launched("sample");
}

}  // namespace lathe::cuda
