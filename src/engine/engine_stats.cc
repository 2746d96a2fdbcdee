#include "engine/engine_stats.h"

#include <algorithm>
#include <cmath>

namespace lathe {

void Buckets::add(double value) {
  int at = 0;
  for (double bound = first_; at < kCount && value > bound; bound *= factor_) ++at;
  ++counts_[at];
  sum_ += value;
}

Histogram Buckets::named(const char* name) const {
  Histogram h{.name = name, .bounds = {}, .counts = {counts_.begin(), counts_.end()}, .sum = sum_};
  double bound = first_;
  for (int i = 0; i < kCount; ++i, bound *= factor_) h.bounds.push_back(bound);
  return h;
}

namespace {

const char* phase_name(int phase) {
  constexpr const char* kNames[] = {"queued", "prefill", "decode"};
  return kNames[phase];
}

const char* refusal_name(size_t why) {
  constexpr const char* kNames[] = {"queue_full", "queue_tokens", "wait",    "draining",
                                    "failed",     "duplicate_id", "too_long"};
  return kNames[why];
}

}  // namespace

ServiceStats EngineNumbers::named() const {
  ServiceStats s;
  auto gauge = [&](const char* name, double value, std::string labels = "") {
    s.metrics.push_back({name, std::move(labels), value, false});
  };
  auto counter = [&](const char* name, uint64_t value, std::string labels = "") {
    s.metrics.push_back({name, std::move(labels), static_cast<double>(value), true});
  };
  gauge("requests_running", running), gauge("requests_waiting", waiting + parked);
  counter("requests_finished_total", finished_stop, R"(finish="stop")");
  counter("requests_finished_total", finished_length, R"(finish="length")");
  for (int f = 0; f < kFailures; ++f)
    counter("requests_failed_total", failed[f], fmt::format(R"(why="{}")", failure_name(static_cast<Failure>(f))));
  for (int p = 0; p < kPhases; ++p) {
    counter("requests_cancelled_total", cancelled[p], fmt::format(R"(phase="{}",why="cancelled")", phase_name(p)));
    counter("requests_cancelled_total", expired[p], fmt::format(R"(phase="{}",why="deadline")", phase_name(p)));
  }
  for (size_t w = 0; w < refused.size(); ++w)
    counter("requests_rejected_total", refused[w], fmt::format(R"(why="{}")", refusal_name(w)));
  counter("requests_preempted_total", preempted);
  counter("prompt_tokens_total", prompt_tokens), counter("generation_tokens_total", generation_tokens);
  counter("cached_prompt_tokens_total", cached_tokens, R"(tier="device")");
  counter("cached_prompt_tokens_total", cached_tokens_host, R"(tier="host")");
  gauge("kv_usage_ratio", pages ? static_cast<double>(pages - free_pages) / pages : 0);
  gauge("pages", free_pages, R"(pool="sequence",state="free")");
  gauge("pages", pages - free_pages, R"(pool="sequence",state="used")");
  gauge("recurrent_slots", free_slots, R"(state="free")");
  gauge("recurrent_slots", slots - free_slots, R"(state="used")");
  gauge("batch_size", batch_rows);
  counter("spec_draft_tokens_total", draft_tokens), counter("spec_accepted_tokens_total", accepted_tokens);
  counter("spec_zero_accept_requests_total", zero_accept_requests);
  counter("nonfinite_logits_total", nonfinite), counter("engine_faults_total", faults);
  gauge("spec_acceptance", draft_acceptance);
  counter("prefix_queries_total", cache.queries), counter("prefix_hits_total", cache.hits);
  counter("prefix_veto_total", cache.vetoes_state, R"(class="state")");
  counter("prefix_veto_total", cache.vetoes_mtp, R"(class="mtp")");
  gauge("checkpoints", cache.on_device, R"(state="device")"), gauge("checkpoints", cache.on_host, R"(state="host")");
  gauge("host_tier_bytes", static_cast<double>(cache.host_bytes));
  counter("tier_load_failures_total", cache.load_failures);
  s.metrics.push_back({"tier_load_seconds_total", "", cache.load_seconds, true});
  counter("audited_tokens_total", audited_tokens), counter("audit_findings_total", audit_findings);
  counter("output_loops_total", loops), counter("output_garbled_total", garbled);
  s.histograms = {queue_time.named("queue_time_seconds"),
                  first_token.named("time_to_first_token_seconds"),
                  inter_token.named("inter_token_latency_seconds"),
                  per_output_token.named("time_per_output_token_seconds"),
                  latency.named("e2e_latency_seconds"),
                  prefill.named("prefill_seconds"),
                  encode.named("encode_seconds"),
                  step.named("step_seconds"),
                  batch.named("step_rows"),
                  accept_length.named("spec_accept_length")};
  return s;
}

}  // namespace lathe
