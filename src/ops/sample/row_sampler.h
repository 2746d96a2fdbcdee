#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/sample/draw.h"
#include "ops/sample/edit.h"
#include "ops/sample/sample.h"

// Draws over a file's Lanes, without sorting the vocabulary: weights are summed in buckets of falling logit, and only
// the bucket that holds a boundary or the drawn token is sorted. Restriction to top_k comes first, by one partial sort.

namespace lathe {
namespace {

// Buckets are 1/64 wide in (greatest - logit)/temperature; what lies 31.98 or more below the greatest shares the last.
constexpr int kBuckets = 2048;
constexpr float kBucketsPerUnit = 64;
// Logits whose maximum is kept, so that the greatest is found again without a second look at all.
constexpr int64_t kStretch = 4096;

struct Candidate {
  int32_t id;
  float logit;
};

inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// A worker's own memory.
struct SampleSpace {
  Candidate* candidates;  // [vocab]
  uint16_t* bucket;       // [vocab]
  float* weight;          // [kStretch]
  double* sum;            // [kBuckets]
  float* edited;          // [vocab], or null where no row has edits or a mask
};

class RowSampler {
 public:
  RowSampler(const float* logits, int vocab, const SampleSettings& settings, const SampleSpace& space)
      : logits_(logits), vocab_(vocab), settings_(settings), space_(space) {}

  int32_t draw(int32_t position) {
    const int32_t greatest = find_greatest();
    if (greatest < 0) return -1;
    top_ = logits_[greatest];
    if (!(settings_.temperature > 0) || std::isinf(top_)) return greatest;
    const double u = uniform_draw(settings_.seed, position);
    if (settings_.top_k > 0 && settings_.top_k < vocab_) return draw_of_greatest(u);
    return draw_of_all(u);
  }

 private:
  using V = Lanes::V;

  static V load(const float* p, int64_t n) {
    return n >= Lanes::kCount ? Lanes::load(p) : Lanes::load(p, static_cast<int>(n));
  }

  // -1: nothing is finite.
  int32_t find_greatest() const {
    float top = -INFINITY;
    bool finite = false;
    int64_t where = 0;
    for (int64_t begin = 0; begin < vocab_; begin += kStretch) {
      const int64_t end = std::min<int64_t>(vocab_, begin + kStretch);
      V most = Lanes::set(-INFINITY), any = Lanes::zero();
      int64_t i = begin;
      for (; i + Lanes::kCount <= end; i += Lanes::kCount) {
        const V x = Lanes::load(logits_ + i);
        most = Lanes::max(x, most);                    // of a NaN: what was there
        any = Lanes::max(x - x + Lanes::set(1), any);  // 1 of what is finite, else NaN
      }
      float largest = Lanes::largest(most);
      finite = finite || Lanes::largest(any) > 0;
      for (; i < end; ++i) {
        if (logits_[i] > largest) largest = logits_[i];
        finite = finite || std::isfinite(logits_[i]);
      }
      if (largest > top) top = largest, where = begin;
    }
    if (!finite) return -1;
    while (logits_[where] != top) ++where;
    return static_cast<int32_t>(where);
  }

  double weight(float logit) const { return std::exp((double{logit} - top_) / settings_.temperature); }

  // ---- few candidates: sorted

  int32_t draw_of_greatest(double u) const {
    Candidate* c = space_.candidates;
    const int64_t n = find_top_k();
    std::sort(c, c + n, ranks_before);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += weight(c[i].logit);
    int64_t kept = 0;
    double reached = 0;
    while (kept < n && (kept == 0 || reached < double{settings_.top_p} * sum)) reached += weight(c[kept++].logit);
    while (kept > 1 && weight(c[kept - 1].logit) < settings_.min_p) reached -= weight(c[--kept].logit);
    return walk(c, kept, u * reached);
  }

  // The top_k candidates that rank first, or all there are, in no order. Whenever the list is long enough it is cut to
  // top_k; what then comes along must beat the least of them, since its id is higher.
  int64_t find_top_k() const {
    Candidate* c = space_.candidates;
    const int64_t k = settings_.top_k;
    int64_t n = 0;
    float least = -INFINITY;
    auto cut = [&] {
      if (n <= k) return;
      std::nth_element(c, c + k - 1, c + n, ranks_before);
      n = k, least = c[k - 1].logit;
    };
    for (int64_t begin = 0; begin < vocab_; begin += kStretch) {
      const int64_t end = std::min<int64_t>(vocab_, begin + kStretch);
      for (int64_t id = begin; id < end; ++id)
        if (logits_[id] > least) c[n++] = {static_cast<int32_t>(id), logits_[id]};
      if (n >= 2 * k) cut();
    }
    cut();
    return n;
  }

  // The candidate at which the running sum passes `target`.
  int32_t walk(const Candidate* c, int64_t n, double target) const {
    for (int64_t i = 0; i + 1 < n; ++i)
      if ((target -= weight(c[i].logit)) < 0) return c[i].id;
    return c[n - 1].id;
  }

  // ---- all of them: in buckets

  // A point in the order of falling logits: behind the first `count` candidates of a bucket.
  struct Cut {
    int bucket;
    int64_t count;
    double sum;  // of what lies before
  };

  int32_t draw_of_all(double u) {
    fill_buckets();
    Cut end{kBuckets, 0, 0};
    for (int b = 0; b < kBuckets; ++b) end.sum += space_.sum[b];
    if (settings_.top_p < 1) end = earlier(end, cut_at_sum(double{settings_.top_p} * end.sum));
    if (settings_.min_p > 0) end = earlier(end, cut_at_weight());
    double target = u * end.sum;
    int b = 0;
    while (b < end.bucket && b + 1 < kBuckets && target >= space_.sum[b]) target -= space_.sum[b++];
    // Rounding may carry the target past the last candidate: then it is the last. The greatest has bucket 0.
    auto holds_any = [&](int bucket) { return bucket == end.bucket ? end.count > 0 : space_.sum[bucket] > 0; };
    for (; !holds_any(b); --b) target = INFINITY;
    const int64_t n = sort_bucket(b);
    return walk(space_.candidates, b == end.bucket ? end.count : n, target);
  }

  static Cut earlier(const Cut& a, const Cut& b) {
    return b.bucket < a.bucket || (b.bucket == a.bucket && b.count < a.count) ? b : a;
  }

  // Bucket of each logit, and the sum of each bucket's weights. What is never taken has bucket kBuckets.
  void fill_buckets() const {
    std::fill(space_.sum, space_.sum + kBuckets, 0.0);
    const V top = Lanes::set(top_), rate = Lanes::set(std::min(1 / settings_.temperature, 3e38f));
    for (int64_t begin = 0; begin < vocab_; begin += kStretch) {
      const int64_t count = std::min<int64_t>(kStretch, vocab_ - begin);
      for (int64_t i = 0; i < count; i += Lanes::kCount) {
        // Kept as distances first: the loop behind it makes integers of them in the plainest way.
        const V distance = (top - load(logits_ + begin + i, count - i)) * rate;
        Lanes::store(space_.weight + i, distance);
      }
      uint16_t* bucket = space_.bucket + begin;
      for (int64_t i = 0; i < count; ++i) {
        const float d = space_.weight[i], scaled = d * kBucketsPerUnit;
        bucket[i] = static_cast<uint16_t>(scaled < kBuckets - 1 ? static_cast<int32_t>(scaled)
                                          : d < INFINITY        ? kBuckets - 1
                                                                : kBuckets);
      }
      for (int64_t i = 0; i < count; i += Lanes::kCount)
        Lanes::store(space_.weight + i, Lanes::exp(Lanes::zero() - Lanes::load(space_.weight + i)));
      for (int64_t i = 0; i < count; ++i)
        if (bucket[i] < kBuckets) space_.sum[bucket[i]] += space_.weight[i];
    }
  }

  // Sorted candidates of a bucket, and how many.
  int64_t sort_bucket(int b) const {
    int64_t n = 0;
    for (int32_t id = 0; id < vocab_; ++id)
      if (space_.bucket[id] == b) space_.candidates[n++] = {id, logits_[id]};
    std::sort(space_.candidates, space_.candidates + n, ranks_before);
    return n;
  }

  // Behind the candidate with which the sum reaches `least`.
  Cut cut_at_sum(double least) const {
    Cut cut{0, 0, 0};
    while (cut.bucket + 1 < kBuckets && cut.sum + space_.sum[cut.bucket] < least) cut.sum += space_.sum[cut.bucket++];
    while (cut.bucket + 1 < kBuckets && space_.sum[cut.bucket] == 0) ++cut.bucket;
    const int64_t n = sort_bucket(cut.bucket);
    while (cut.count < n && (cut.count == 0 || cut.sum < least))
      cut.sum += weight(space_.candidates[cut.count++].logit);
    return cut;
  }

  // Behind the last candidate of at least min_p times the greatest weight.
  Cut cut_at_weight() const {
    const double distance = -std::log(double{settings_.min_p});
    Cut cut{0, 0, 0};
    // One bucket early, so that rounding can't have put the last one a bucket further than this.
    const int last = static_cast<int>(std::clamp(distance * kBucketsPerUnit - 1, 0.0, double{kBuckets - 1}));
    while (cut.bucket < last) cut.sum += space_.sum[cut.bucket++];
    for (;; ++cut.bucket) {
      const int64_t n = sort_bucket(cut.bucket);
      double sum = 0;
      for (cut.count = 0; cut.count < n && !(weight(space_.candidates[cut.count].logit) < settings_.min_p); ++cut.count)
        sum += weight(space_.candidates[cut.count].logit);
      // The greatest always stays, even if min_p is above 1.
      if (cut.bucket == 0 && cut.count == 0) return {0, 1, 1};
      if (cut.count < n || cut.bucket + 1 == kBuckets) {
        cut.sum += sum;
        return cut;
      }
      cut.sum += space_.sum[cut.bucket];
    }
  }

  const float* logits_;
  const int vocab_;
  const SampleSettings& settings_;
  const SampleSpace& space_;
  float top_ = 0;
};

// The row's logits as they are drawn from: edited in a copy, unless there is nothing to change.
inline const float* edit_row(const SampleArgs& args, int64_t row, const float* logits, float* copy) {
  const int32_t mask = args.mask.empty() ? -1 : args.mask[row];
  const int32_t begin = args.edit_start.empty() ? 0 : args.edit_start[row];
  const int32_t end = args.edit_start.empty() ? 0 : args.edit_start[row + 1];
  if (mask < 0 && begin == end) return logits;
  std::copy_n(logits, args.vocab, copy);
  for (int32_t i = begin; i < end; ++i) {
    const LogitEdit& e = args.edits[i];
    copy[e.token] = edited(copy[e.token], e, args.penalties[row]);
  }
  if (mask < 0) return copy;
  const uint32_t* allowed = args.allowed.data + mask * args.mask_words();
  for (int32_t id = 0; id < args.vocab; id += 32) {
    const uint32_t bits = allowed[id / 32];
    const int32_t count = std::min(32, args.vocab - id);
    if (bits == ~uint32_t{0}) continue;
    for (int32_t i = 0; i < count; ++i)
      if (!(bits >> i & 1)) copy[id + i] = -INFINITY;
  }
  return copy;
}

// Log probabilities of one row of logits, as the model gave them.
class RowLogprobs {
 public:
  RowLogprobs(const float* logits, int vocab) : logits_(logits), vocab_(vocab) {
    for (int64_t i = 0; i < vocab; ++i) top_ = logits[i] > top_ ? logits[i] : top_;
    if (std::isfinite(top_)) log_sum_ = std::log(sum());
  }

  float of(int32_t token) const {
    const float x = logits_[token];
    if (std::isinf(top_)) return x == top_ ? 0 : -INFINITY;
    return std::isnan(x) ? -INFINITY : static_cast<float>(double{x} - top_ - log_sum_);
  }

  int32_t rank(int32_t token) const {
    const float x = std::isnan(logits_[token]) ? -INFINITY : logits_[token];
    int32_t before = 0;
    for (int32_t i = 0; i < token; ++i) before += logits_[i] >= x;
    for (int32_t i = token + 1; i < vocab_; ++i) before += logits_[i] > x;
    return before + 1;
  }

  // The `count` greatest, falling; what there isn't is -1.
  void best(int count, int32_t* token, float* logprob) const {
    int found = 0;
    for (int32_t id = 0; id < vocab_; ++id) {
      const float x = logits_[id];
      if (!(x > -INFINITY) || (found == count && !(x > logits_[token[count - 1]]))) continue;
      int at = found < count ? found++ : count - 1;
      for (; at > 0 && x > logits_[token[at - 1]]; --at) token[at] = token[at - 1];
      token[at] = id;
    }
    for (int i = 0; i < count; ++i) {
      if (i >= found) token[i] = -1;
      logprob[i] = i < found ? of(token[i]) : 0;
    }
  }

 private:
  using V = Lanes::V;

  // Of exp(logit - greatest). What lies 100 below counts as nothing, in fp32 it is.
  double sum() const {
    const V top = Lanes::set(top_), least = Lanes::set(top_ - 100);
    double sum = 0;
    for (int64_t begin = 0; begin < vocab_; begin += kStretch) {
      const int64_t end = std::min<int64_t>(vocab_, begin + kStretch);
      V some = Lanes::zero();
      int64_t i = begin;
      for (; i + Lanes::kCount <= end; i += Lanes::kCount)
        some = some + Lanes::exp(Lanes::max(Lanes::load(logits_ + i), least) - top);
      sum += Lanes::sum(some);
      for (; i < end; ++i)
        if (logits_[i] > top_ - 100) sum += std::exp(double{logits_[i]} - top_);
    }
    return sum;
  }

  const float* logits_;
  const int vocab_;
  float top_ = -INFINITY;
  double log_sum_ = 0;
};

inline void write_logprobs(const SampleArgs& args, int64_t row, const float* logits) {
  const int wanted = args.best_wanted[row], width = args.best_width;
  int32_t* best = args.best_token.data + row * width;
  float* best_logprob = args.best_logprob.data + row * width;
  args.logprob[row] = 0, args.rank[row] = 0;
  std::fill_n(best, width, -1);
  std::fill_n(best_logprob, width, 0.f);
  const int32_t token = args.token[row];
  if (wanted < 0 || token < 0) return;
  const RowLogprobs probs(logits, args.vocab);
  args.logprob[row] = probs.of(token);
  args.rank[row] = probs.rank(token);
  if (wanted > 0) probs.best(wanted, best, best_logprob);
}

inline Status sample_rows(OpContext& ctx, const SampleArgs& args) {
  ArenaScope scope(*ctx.scratch);
  const int64_t threads = ctx.pool->threads(), vocab = args.vocab;
  const bool edits = !args.mask.empty() || !args.edit_start.empty();
  SampleSpace* spaces = ctx.scratch->take<SampleSpace>(threads);
  for (int64_t t = 0; t < threads; ++t)
    spaces[t] = {ctx.scratch->take<Candidate>(vocab), ctx.scratch->take<uint16_t>(vocab),
                 ctx.scratch->take<float>(kStretch), ctx.scratch->take<double>(kBuckets),
                 edits ? ctx.scratch->take<float>(vocab) : nullptr};
  ctx.pool->run(args.rows(), [&](int64_t row, int worker) {
    const SampleSpace& space = spaces[worker];
    const float* logits = args.logits.f32(args.logit_row.empty() ? row : args.logit_row[row]);
    const int32_t given = args.given.empty() ? -1 : args.given[row];
    args.token[row] = given >= 0
                          ? given
                          : RowSampler(edit_row(args, row, logits, space.edited), args.vocab, args.settings[row], space)
                                .draw(args.position[row]);
    if (!args.best_wanted.empty()) write_logprobs(args, row, logits);
  });
  return Status::ok();
}

}  // namespace
}  // namespace lathe
