#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "cache/prefix_cache.h"
#include "engine/service.h"

namespace lathe {

// A histogram with a fixed number of bounds, cheap enough for every step.
class Buckets {
 public:
  static constexpr int kCount = 16;
  // Bounds first, first·factor, first·factor², ...
  constexpr Buckets(double first, double factor) : first_(first), factor_(factor) {}
  void add(double value);
  Histogram named(const char* name) const;

 private:
  double first_, factor_;
  std::array<uint64_t, kCount + 1> counts_{};
  double sum_ = 0;
};

// What the step loop counts. A value: the loop's own is copied out once a step.
struct EngineNumbers {
  static constexpr int kFailures = 8;  // of enum Failure
  enum Phase { kQueued, kPrefill, kDecode, kPhases };

  uint64_t finished_stop = 0, finished_length = 0, failed[kFailures] = {};
  uint64_t cancelled[kPhases] = {}, expired[kPhases] = {};
  uint64_t preempted = 0, prompt_tokens = 0, generation_tokens = 0, cached_tokens = 0, cached_tokens_host = 0;
  uint64_t draft_tokens = 0, accepted_tokens = 0, zero_accept_requests = 0, nonfinite = 0, faults = 0, steps = 0;
  uint64_t loops = 0, garbled = 0, audited_tokens = 0, audit_findings = 0;
  int running = 0, waiting = 0, parked = 0;
  int pages = 0, free_pages = 0, slots = 0, free_slots = 0, batch_rows = 0;

  Buckets queue_time{0.001, 2.5}, first_token{0.005, 2}, inter_token{0.0005, 2}, per_output_token{0.0005, 2};
  Buckets latency{0.02, 2.2}, prefill{0.002, 2.5}, encode{0.002, 2.5}, step{0.0002, 2}, batch{1, 1.6};
  Buckets accept_length{1, 1.3};

  std::array<uint64_t, 7> refused{};  // by Refusal::Why
  double draft_acceptance = 0;        // of drafts, lately
  PrefixCacheStats cache;

  ServiceStats named() const;
};

}  // namespace lathe
