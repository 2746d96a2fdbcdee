#include "testing/never_lies.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <thread>

#include "lathe/logits.h"

namespace lathe::testing {

namespace {

constexpr size_t kMostExamples = 5;
constexpr double kTolerance = 4;  // path differences

double metric(const ServiceStats& stats, std::string_view name, std::string_view labels = "") {
  double sum = 0;
  for (const Metric& m : stats.metrics)
    if (m.name == name && m.labels.find(labels) != std::string::npos) sum += m.value;
  return sum;
}

// All requests through one service, `at_once` of them in flight; those that shall be cancelled are.
struct Together {
  std::vector<RandomTraffic::Item> items;
  std::vector<Served> results;
};

Together serve_together(Service& service, const NeverLiesOptions& o, NeverLiesReport& report) {
  RandomTraffic traffic(o.traffic);
  Client client(service);
  Together t;
  t.results.resize(o.requests);
  std::list<size_t> open;
  while (t.items.size() < t.results.size() || !open.empty()) {
    while (t.items.size() < t.results.size() && open.size() < static_cast<size_t>(o.at_once)) {
      open.push_back(t.items.size());
      t.items.push_back(traffic.next());
      client.submit(t.items.back().request);
    }
    for (auto it = open.begin(); it != open.end();) {
      const RandomTraffic::Item& item = t.items[*it];
      const std::string& id = item.request.id;
      if (client.ended(id)) {
        Served& s = t.results[*it] = client.wait(id);
        std::vector<int32_t> tokens = item.request.prompt;
        for (const int32_t token : s.outputs[0].ids()) tokens.push_back(token);
        if (item.request.media.empty()) traffic.remember(std::move(tokens));
        it = open.erase(it);
        continue;
      }
      if (item.cancel_after_tokens >= 0 && client.tokens_of(id) >= static_cast<size_t>(item.cancel_after_tokens))
        service.cancel(id);
      ++it;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  report.disorder += client.disorder();
  return t;
}

// What is still taken when nobody is there and the cache is empty.
int leaks(Service& service) {
  service.flush_cache();
  int used = 0;
  for (int tries = 0; tries < 200; ++tries) {
    const ServiceStats stats = service.stats();
    used = static_cast<int>(metric(stats, "pages", R"(state="used")") +
                            metric(stats, "recurrent_slots", R"(state="used")") + metric(stats, "requests_running") +
                            metric(stats, "requests_waiting"));
    if (used == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return used;
}

size_t first_difference(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  return at;
}

// How far apart log probabilities of the same tokens lie by two ways through the model: whole prompt, and pieces with
// decode by ring. All but the rarest: a near tie between experts may fall otherwise.
Result<double> measure_path_difference(const NeverLiesOptions& o) {
  std::vector<std::vector<int32_t>> lists;
  TrafficOptions traffic = o.traffic;
  traffic.pictures = false;
  RandomTraffic random(traffic);
  for (int i = 0; i < 24; ++i) lists.push_back(random.next().request.prompt);
  LogitsOptions plain{.model = o.served.engine.model, .dtype = o.served.engine.dtype}, other = plain;
  plain.threads = other.threads = o.served.engine.threads;
  other.chunk = 19, other.decode_from = 40, other.replay = true;
  LATHE_ASSIGN(const std::vector<SequenceLogits> a, compute_logits(plain, lists));
  LATHE_ASSIGN(const std::vector<SequenceLogits> b, compute_logits(other, lists));
  std::vector<double> differences;
  for (size_t i = 0; i < lists.size(); ++i)
    for (int64_t r = 0; r < a[i].rows; ++r) {
      double most = 0;
      for (int64_t v = r * a[i].vocab; v < (r + 1) * a[i].vocab; ++v)
        most = std::max(most, std::abs(double{a[i].logits[v]} - b[i].logits[v]));
      differences.push_back(most);
    }
  std::sort(differences.begin(), differences.end());
  return differences[differences.size() * 99 / 100];
}

class Comparison {
 public:
  Comparison(const NeverLiesOptions& o, NeverLiesReport& report) : o_(o), report_(report) {}

  void compare(const Request& r, const Served& together, const Served& alone) {
    bool differs = false;
    for (int i = 0; i < r.n; ++i) differs |= !same(r, i, together.outputs[i], alone.outputs[i]);
    ++report_.compared;
    report_.differing += differs;
    off_in_request_ ? ++report_.off : 0;
    unexplained_in_request_ ? ++report_.unexplained : 0;
    off_in_request_ = unexplained_in_request_ = false;
  }

 private:
  bool same(const Request& r, int choice, const Served::Output& a, const Served::Output& b) {
    const std::vector<int32_t> x = a.ids(), y = b.ids();
    const size_t at = first_difference(x, y);
    if (!o_.served.strict) {
      for (size_t t = 0; t < at; ++t) compare_logprobs(r, choice, t, a.tokens[t], b.tokens[t]);
      if (x != y && r.sampling.temperature == 0) explain(r, choice, at, a, b);
    }
    if (x == y && a.text == b.text && a.finish == b.finish) return true;
    note(fmt::format("{} choice {}: {} and {} tokens, the first difference at {} ({}/{}); prompt {}, seed {}", r.id,
                     choice, x.size(), y.size(), at, at < x.size() ? x[at] : -1, at < y.size() ? y[at] : -1,
                     r.prompt.size(), r.sampling.seed));
    return false;
  }

  void compare_logprobs(const Request& r, int choice, size_t t, const OutputToken& a, const OutputToken& b) {
    if (!a.logprob || !b.logprob) return;
    const double difference = std::abs(*a.logprob - *b.logprob);
    if (difference <= kTolerance * report_.path_difference) return;
    if (!off_in_request_)
      note(fmt::format("{} choice {}: log probability at {} is off by {:.3g}", r.id, choice, t, difference));
    off_in_request_ = true;
  }

  // A near tie: what was chosen here and there is equally likely.
  void explain(const Request& r, int choice, size_t at, const Served::Output& together, const Served::Output& alone) {
    const bool near =
        at < together.tokens.size() && at < alone.tokens.size() && together.tokens[at].logprob &&
        std::abs(*together.tokens[at].logprob - *alone.tokens[at].logprob) <= kTolerance * report_.path_difference;
    if (near) return;
    unexplained_in_request_ = true;
    note(fmt::format("{} choice {}: the difference at {} is no near tie", r.id, choice, at));
  }

  void note(std::string text) {
    if (report_.examples.size() < kMostExamples) report_.examples.push_back(std::move(text));
  }

  const NeverLiesOptions& o_;
  NeverLiesReport& report_;
  bool off_in_request_ = false, unexplained_in_request_ = false;
};

Status serve_alone(const NeverLiesOptions& o, const Together& t, NeverLiesReport& report) {
  ServiceOptions options = o.served;
  options.drafts = 0, options.host_tier_bytes = 0, options.parts = {};
  options.cache_tokens = std::max<int64_t>(options.cache_tokens, 4096), options.step_tokens = 2048;
  LATHE_ASSIGN(const std::unique_ptr<Service> service, Service::start(options));
  Client client(*service);
  Comparison comparison(o, report);
  for (size_t i = 0; i < t.items.size(); ++i) {
    const Served& together = t.results[i];
    if (together.failure == Failure::kCancelled) {
      ++report.cancelled;
      continue;
    }
    const Request& r = t.items[i].request;
    if (together.failure || together.refusal)
      return internal("{} failed: {}", r.id, together.refusal ? together.refusal->message : together.message);
    service->flush_cache();
    const Served alone = client.run(r);
    if (alone.failure || alone.refusal) return internal("{} alone failed: {}", r.id, alone.message);
    comparison.compare(r, together, alone);
  }
  report.disorder += client.disorder();
  report.leaks += leaks(*service);
  return Status::ok();
}

}  // namespace

NeverLiesOptions under_pressure(const std::string& model, bool strict, int context) {
  NeverLiesOptions o;
  o.served.engine.model = model, o.served.engine.threads = 1, o.served.engine.dtype = "f32";
  o.served.strict = strict;
  o.served.max_running = 8, o.served.step_tokens = 72, o.served.checkpoints = 10;
  o.served.cache_tokens = int64_t{5} * context;  // for eight running ones
  o.served.checkpoint_interval = 64, o.served.checkpoint_least = 8, o.served.host_tier_bytes = 4 << 20,
  o.served.drafts = 2;
  o.traffic.longest = context;
  o.traffic.logprobs = !strict, o.traffic.greedy_only = !strict;
  return o;
}

void print(const NeverLiesReport& r, uint64_t seed) {
  fmt::print(
      "seed {}: {} requests, {} cancelled, {} compared, {} differ ({} unexplained, {} off), {} preempted, {} tokens "
      "from "
      "the cache, {} of {} drafts accepted, path difference {:.3g}\n",
      seed, r.requests, r.cancelled, r.compared, r.differing, r.unexplained, r.off, r.preempted, r.hit_tokens,
      r.accepted, r.drafts, r.path_difference);
  for (const std::string& e : r.examples) fmt::print("  {}\n", e);
  std::fflush(stdout);
}

Result<NeverLiesReport> run_never_lies(const NeverLiesOptions& o) {
  NeverLiesReport report;
  report.requests = o.requests;
  if (!o.served.strict) {
    LATHE_ASSIGN(report.path_difference, measure_path_difference(o));
  }
  Together together;
  {
    LATHE_ASSIGN(const std::unique_ptr<Service> service, Service::start(o.served));
    together = serve_together(*service, o, report);
    report.leaks = leaks(*service);
    const ServiceStats stats = service->stats();
    report.preempted = static_cast<uint64_t>(metric(stats, "requests_preempted_total"));
    report.hit_tokens = static_cast<uint64_t>(metric(stats, "cached_prompt_tokens_total"));
    report.drafts = static_cast<uint64_t>(metric(stats, "spec_draft_tokens_total"));
    report.accepted = static_cast<uint64_t>(metric(stats, "spec_accepted_tokens_total"));
  }
  LATHE_RETURN_IF_ERROR(serve_alone(o, together, report));
  return report;
}

}  // namespace lathe::testing
