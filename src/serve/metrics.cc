#include "serve/metrics.h"

#include <algorithm>
#include <cmath>

namespace lathe::serve {

namespace {

const std::vector<double> kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                      1,     2.5,    5,     10,   30,    60,   120, 300};

struct Alias {
  const char *ours, *theirs;
};
constexpr Alias kVllm[] = {
    {"requests_running", "num_requests_running"},
    {"requests_waiting", "num_requests_waiting"},
    {"kv_usage_ratio", "kv_cache_usage_perc"},
    {"time_to_first_token_seconds", "time_to_first_token_seconds"},
    {"inter_token_latency_seconds", "inter_token_latency_seconds"},
    {"e2e_latency_seconds", "e2e_request_latency_seconds"},
    {"prompt_tokens_total", "prompt_tokens_total"},
    {"generation_tokens_total", "generation_tokens_total"},
};

std::string value_text(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", v);
}

std::string braces(const std::string& common, const std::string& own) {
  const std::string all = common + (common.empty() || own.empty() ? "" : ",") + own;
  return all.empty() ? "" : "{" + all + "}";
}

const MetricName* known(const std::string& name) {
  for (const MetricName& m : metric_names())
    if (name == m.name) return &m;
  return nullptr;
}

void write_head(std::string& out, const std::string& full, const std::string& name, const char* type) {
  if (const MetricName* m = known(name)) out += fmt::format("# HELP {} {}\n", full, m->meaning);
  out += fmt::format("# TYPE {} {}\n", full, type);
}

void write_histogram(std::string& out, const std::string& full, const Histogram& h, const std::string& common) {
  write_head(out, full, h.name, "histogram");
  uint64_t sum = 0;
  for (size_t i = 0; i < h.counts.size(); ++i) {
    sum += h.counts[i];
    const std::string bound = i < h.bounds.size() ? value_text(h.bounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{} {}\n", full, braces(common, fmt::format("le=\"{}\"", bound)), sum);
  }
  out += fmt::format("{}_sum{} {}\n{}_count{} {}\n", full, braces(common, ""), value_text(h.sum), full,
                     braces(common, ""), sum);
}

std::string vllm_name(const std::string& ours) {
  for (const Alias& a : kVllm)
    if (ours == a.ours) return std::string("vllm:") + a.theirs;
  return "";
}

}  // namespace

void Metrics::count(const std::string& name, const std::string& labels, double by) {
  const std::lock_guard lock(mutex_);
  counters_[{name, labels}] += by;
}

void Metrics::observe(const std::string& name, double seconds) {
  const std::lock_guard lock(mutex_);
  Histogram& h = histograms_[name];
  if (h.name.empty())
    h = {.name = name, .bounds = kSeconds, .counts = std::vector<uint64_t>(kSeconds.size() + 1), .sum = 0};
  ++h.counts[static_cast<size_t>(std::lower_bound(h.bounds.begin(), h.bounds.end(), seconds) - h.bounds.begin())];
  h.sum += seconds;
}

std::vector<Metric> Metrics::counters() const {
  const std::lock_guard lock(mutex_);
  std::vector<Metric> out;
  for (const auto& [key, value] : counters_) out.push_back({key.first, key.second, value, true});
  return out;
}

std::vector<Histogram> Metrics::histograms() const {
  const std::lock_guard lock(mutex_);
  std::vector<Histogram> out;
  for (const auto& [name, h] : histograms_) out.push_back(h);
  return out;
}

std::string quoted_label(std::string_view value) {
  std::string out = "\"";
  for (char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string prometheus_text(const std::vector<Metric>& metrics, const std::vector<Histogram>& histograms,
                            const std::string& common, bool vllm) {
  std::string out;
  std::vector<const Metric*> sorted;  // all lines of a name stand together
  for (const Metric& m : metrics) sorted.push_back(&m);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Metric* a, const Metric* b) { return a->name < b->name; });
  auto write = [&](auto&& name_of) {
    std::string last;
    for (const Metric* m : sorted) {
      const std::string full = name_of(m->name);
      if (full.empty()) continue;
      if (full != last) write_head(out, full, m->name, m->counter ? "counter" : "gauge");
      last = full;
      out += fmt::format("{}{} {}\n", full, braces(common, m->labels), value_text(m->value));
    }
    for (const Histogram& h : histograms)
      if (const std::string full = name_of(h.name); !full.empty()) write_histogram(out, full, h, common);
  };
  write([](const std::string& name) { return "lathe_" + name; });
  if (vllm) write(vllm_name);
  return out;
}

const std::vector<MetricName>& metric_names() {
  static const std::vector<MetricName> names = {
      {"requests_total", "counter", "requests by route, status code and finish"},
      {"requests_running", "gauge", "requests of which some choice is being computed"},
      {"requests_waiting", "gauge", "requests in the queue"},
      {"requests_preempted_total", "counter", "requests that gave up their memory for a while"},
      {"requests_cancelled_total", "counter", "requests ended early, by phase and why"},
      {"requests_rejected_total", "counter", "requests not taken, by why"},
      {"requests_finished_total", "counter", "requests that ended as they should, by finish"},
      {"requests_failed_total", "counter", "requests that the engine could not finish, by why"},
      {"queue_time_seconds", "histogram", "from admission to the first step"},
      {"time_to_first_token_seconds", "histogram", "from a request's arrival to its first token"},
      {"inter_token_latency_seconds", "histogram", "between two tokens of a choice"},
      {"time_per_output_token_seconds", "histogram", "of a request, behind its first token"},
      {"e2e_latency_seconds", "histogram", "from a request's arrival to its end"},
      {"prefill_seconds", "histogram", "of a request's prompt"},
      {"encode_seconds", "histogram", "of a request's pictures"},
      {"prompt_tokens_total", "counter", "tokens of prompts"},
      {"generation_tokens_total", "counter", "tokens of outputs"},
      {"cached_prompt_tokens_total", "counter", "prompt tokens found in the prefix cache, by tier"},
      {"prefix_queries_total", "counter", "prompts looked up in the prefix cache"},
      {"prefix_hits_total", "counter", "of those, found in part"},
      {"prefix_veto_total", "counter", "hits cut short, by the class of memory that could not resume"},
      {"kv_usage_ratio", "gauge", "pages in use"},
      {"pages", "gauge", "pages by pool and state"},
      {"recurrent_slots", "gauge", "slots of recurrent state, by state"},
      {"checkpoints", "gauge", "checkpoints of the prefix cache, by state"},
      {"host_tier_bytes", "gauge", "bytes in the host tier"},
      {"tier_load_seconds_total", "counter", "time spent bringing blocks back from the host tier"},
      {"tier_load_failures_total", "counter", "loads from the host tier that failed"},
      {"spec_draft_tokens_total", "counter", "tokens drafted"},
      {"spec_accepted_tokens_total", "counter", "drafted tokens that were right"},
      {"spec_acceptance", "gauge", "share of drafted tokens that were right lately"},
      {"spec_accept_length", "histogram", "tokens per verification step, the bonus token included"},
      {"spec_zero_accept_requests_total", "counter", "requests without one accepted draft"},
      {"grammar_compile_seconds", "histogram", "compiling a grammar"},
      {"grammar_failures_total", "counter", "grammars refused, and masks without a token"},
      {"tool_parse_failures_total", "counter", "calls that could not be read and went out as content"},
      {"image_rejects_total", "counter", "images refused, by why"},
      {"nonfinite_logits_total", "counter", "rows of logits without a finite value"},
      {"output_loops_total", "counter", "outputs that the monitor took for a loop"},
      {"output_garbled_total", "counter", "outputs that the monitor took for garbled"},
      {"audited_tokens_total", "counter", "tokens recomputed by the audit"},
      {"audit_findings_total", "counter", "of those, tokens that the replay would hardly have given"},
      {"step_seconds", "histogram", "of a step of the engine"},
      {"step_rows", "histogram", "token rows of a step"},
      {"batch_size", "gauge", "token rows of the last step"},
      {"engine_faults_total", "counter", "faults that stopped the engine"},
      {"unknown_fields_total", "counter", "request fields that aren't known, by route"},
      {"http_connections", "gauge", "open connections"},
      {"build_info", "gauge", "1, with version and build id as labels"},
  };
  return names;
}

}  // namespace lathe::serve
