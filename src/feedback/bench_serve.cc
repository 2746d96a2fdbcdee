#include "feedback/bench_serve.h"

#include <algorithm>
#include <map>
#include <optional>

#include "feedback/ceilings.h"
#include "feedback/eval_suite.h"
#include "feedback/model_work.h"
#include "feedback/spread.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrompt = 256;  // tokens of a choice whose steps are timed
constexpr int kCeilingSamples = 5;
constexpr int64_t kLargestCeilingSet = int64_t{2} << 30;
constexpr int kPrefix = 4096, kTail = 16;

// Splits steps into operators and the rest. Its own clock reads count as rest.
class StepTimes final : public OpObserver {
 public:
  struct Share {
    const char *op, *variant;
    double us;
  };
  struct Step {
    StepReport report;
    double ops_us = 0;
    std::vector<Share> by_op;
    double us() const { return report.seconds * 1e6; }
  };

  void begin(const char*, const char*, Address) override { begun_ = Clock::now(); }
  void end(const char* op, const char* variant, Address) override {
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begun_).count();
    ops_us_ += us;
    // Names are static, and there are few.
    auto at =
        std::find_if(by_op_.begin(), by_op_.end(), [&](const Share& s) { return s.op == op && s.variant == variant; });
    if (at == by_op_.end()) at = by_op_.insert(at, {op, variant, 0});
    at->us += us;
  }
  void step(const StepReport& report) {
    steps_.push_back({report, std::exchange(ops_us_, 0), by_op_});
    for (Share& s : by_op_) s.us = 0;
  }

  // Of so many rows, none of a prompt.
  std::vector<Step> decodes_of(int rows) const {
    std::vector<Step> found;
    for (const Step& s : steps_)
      if (s.report.rows == rows && !s.report.prefills) found.push_back(s);
    return found;
  }
  void clear() { steps_.clear(); }

 private:
  SteadyTime begun_;
  double ops_us_ = 0;
  std::vector<Share> by_op_;
  std::vector<Step> steps_;
};

std::string judged(bool reached, const std::string& goal) {
  return fmt::format("goal {}: {}", goal, reached ? "reached" : "MISSED");
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

class ServeBench {
 public:
  ServeBench(const ServeBenchOptions& options, ServeBenchProgress progress)
      : options_(options), progress_(std::move(progress)), pool_(options.threads) {}

  Status run() {
    if (wanted("steps")) LATHE_RETURN_IF_ERROR(steps());
    if (wanted("prefix")) LATHE_RETURN_IF_ERROR(prefix());
    if (wanted("speculation")) LATHE_RETURN_IF_ERROR(speculation());
    if (wanted("load")) LATHE_RETURN_IF_ERROR(load());
    return Status::ok();
  }
  std::vector<NumberRow> take_rows() { return std::move(rows_); }

 private:
  bool wanted(const std::string& part) const {
    return options_.parts.empty() ||
           std::find(options_.parts.begin(), options_.parts.end(), part) != options_.parts.end();
  }
  void tell(const std::string& what) const {
    if (progress_) progress_(what);
  }
  ServiceOptions service_options(int drafts) const {
    ServiceOptions o;
    o.engine.model = options_.model, o.engine.threads = options_.threads, o.engine.variants = options_.variants;
    o.drafts = drafts, o.checkpoints = 64;
    return o;
  }
  NumberRow& add_row(const std::string& name, int drafts, std::optional<double> us = {}) {
    rows_.push_back({.op = "serve", .variant = fmt::format("drafts{}", drafts), .case_name = name, .device = "cpu"});
    rows_.back().median_us = us;
    return rows_.back();
  }

  Status count_work();
  double roof_us(int rows, int context, NumberRow& counted);
  Status steps();
  Status steps_of(Service& service, StepTimes& times, int rows);
  Status prefix();
  Status speculation();
  Status load();
  void report_load(const std::string& name, const LoadResult& result, const ServiceStats& before,
                   const ServiceStats& after);

  const ServeBenchOptions& options_;
  ServeBenchProgress progress_;
  ThreadPool pool_;  // of the ceilings
  std::unique_ptr<CeilingBench> ceilings_;
  ModelWork work_;
  std::vector<NumberRow> rows_;
};

// -- steps

Status ServeBench::count_work() {
  LATHE_ASSIGN(const glm5_next::Config config, glm5_next::Config::read(options_.model));
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options_.model));
  const std::unique_ptr<Device> device = make_cpu_device();
  LATHE_ASSIGN(const auto executor, Executor::create(config, checkpoint, *device, pool_, nullptr,
                                                     {.dtype = config.text.dtype, .slots = 1, .pages = 2}));
  work_ = model_work(executor->tower());
  LATHE_ASSIGN(ceilings_, CeilingBench::create(std::clamp(work_.weight_bytes, int64_t{64} << 20, kLargestCeilingSet)));
  return Status::ok();
}

// What the ceilings allow a step of so many choices at a context: the slower of its bytes and its arithmetic.
double ServeBench::roof_us(int rows, int context, NumberRow& counted) {
  const int64_t reads = work_.weight_bytes_of(rows) + rows * work_.context_bytes(context);
  const int64_t updates = rows * work_.state_update_bytes;
  const auto seconds = [&](int64_t bytes, Traffic traffic) {
    const int64_t set = std::clamp<int64_t>(bytes, 1 << 20, ceilings_->bytes());
    return static_cast<double>(bytes) / ceilings_->bandwidth(pool_, traffic, set, kCeilingSamples).median;
  };
  const double memory = seconds(reads, Traffic::kRead) + seconds(updates, Traffic::kUpdate);
  double compute = 0;
  const auto spend = [&](Precision precision, double of_row) {
    if (of_row > 0) compute += rows * of_row / ceilings_->dot_peak(pool_, precision, kCeilingSamples).rate.median;
  };
  const double mixing = work_.mixing_flop(context);
  spend(Precision::kFp32, work_.row.fp32 + work_.logit_row.fp32 + mixing);
  spend(Precision::kBf16, work_.row.bf16 + work_.logit_row.bf16);
  spend(Precision::kInt8, work_.row.int8 + work_.logit_row.int8);
  counted.bytes = static_cast<double>(reads + updates);
  counted.flop = rows * (work_.row.all() + work_.logit_row.all() + mixing);
  return std::max(memory, compute) * 1e6;
}

Status ServeBench::steps() {
  LATHE_RETURN_IF_ERROR(count_work());
  StepTimes times;
  ServiceOptions o = service_options(0);
  o.op_observer = &times;
  o.on_step = [&](const StepReport& report) { times.step(report); };
  LATHE_ASSIGN(const std::unique_ptr<Service> service, Service::start(o));
  for (const int rows : {64, 1}) LATHE_RETURN_IF_ERROR(steps_of(*service, times, rows));
  return Status::ok();
}

Status ServeBench::steps_of(Service& service, StepTimes& times, int rows) {
  tell(fmt::format("steps of {} rows", rows));
  times.clear();
  NumberRow counted;
  const int context = kPrompt + options_.steps / 2;
  double roof = roof_us(rows, context, counted);
  LATHE_ASSIGN(const LoadResult load, run_load(service, {.input = kPrompt, .output = options_.steps + rows},
                                               {.requests = rows, .concurrency = rows}, {}));
  for (const ServedTimes& t : load.times)
    if (t.failed || t.refused) return internal("a request of the bench failed");
  roof = (roof + roof_us(rows, context, counted)) / 2;
  std::vector<double> whole, outside;
  std::map<std::pair<std::string, std::string>, std::vector<double>> shares;
  for (const StepTimes::Step& s : times.decodes_of(rows)) {
    whole.push_back(s.us()), outside.push_back(s.us() - s.ops_us);
    for (const StepTimes::Share& one : s.by_op) shares[{one.op, one.variant}].push_back(one.us);
  }
  if (whole.empty()) return internal("no step decoded {} rows at once", rows);
  const Spread step = spread_of(whole), rest = spread_of(outside);
  const std::string name = fmt::format("step_rows{}", rows);
  NumberRow& row = add_row(name, 0, step.median);
  row.spread_us = step.half_iqr, row.bytes = counted.bytes, row.flop = counted.flop, row.roof_us = roof;
  row.roof_fraction = roof / step.median, row.tokens_per_s = rows / step.median * 1e6;
  const double most = rows == 1 ? 2.5 : 1.6;
  row.note = fmt::format("{:.2f} times its roof, {}", step.median / roof,
                         judged(step.median <= most * roof, fmt::format("at most {}", most)));
  NumberRow& other = add_row(name + "/outside", 0, rest.median);
  const double allowed = 50 + 0.5 * rows, share = rest.median / step.median;
  other.spread_us = rest.half_iqr, other.ratio = share;
  other.note = fmt::format("of the step, outside operators; {}",
                           judged(rest.median <= allowed && (rows == 1 || share <= 0.05),
                                  fmt::format("at most {:.0f} us{}", allowed, rows == 1 ? "" : " and 5 %")));
  for (auto& [op, us] : shares)
    if (const double median = spread_of(us).median; median > 0)
      rows_.push_back(
          {.op = op.first, .variant = op.second, .case_name = name + "/share", .device = "cpu", .median_us = median});
  return Status::ok();
}

// -- the prefix cache

Status ServeBench::prefix() {
  tell("a prefix of 4096 tokens");
  LATHE_ASSIGN(const std::unique_ptr<Service> service, Service::start(service_options(options_.drafts)));
  std::vector<double> cold, warm, ratio;
  for (int trial = 0; trial < options_.trials; ++trial) {
    LoadShape shape{.input = kPrefix + kTail, .output = 8, .seed = options_.shape.seed + 100 + trial};
    shape.shared = static_cast<double>(kPrefix) / shape.input;
    LATHE_ASSIGN(const LoadResult both, run_load(*service, shape, {.requests = 2, .concurrency = 1}, {}));
    if (both.times[1].usage.cached_tokens < kPrefix)
      return internal("the prefix of {} tokens was not found again, but {}", kPrefix,
                      both.times[1].usage.cached_tokens);
    cold.push_back(both.times[0].first_us()), warm.push_back(both.times[1].first_us());
    ratio.push_back(cold.back() / warm.back());
  }
  const Spread c = spread_of(cold), w = spread_of(warm);
  add_row("prefix_4096/cold", options_.drafts, c.median).spread_us = c.half_iqr;
  NumberRow& row = add_row("prefix_4096/warm", options_.drafts, w.median);
  row.spread_us = w.half_iqr, row.ratio = spread_of(ratio).median;
  row.note = "times sooner than cold; " + judged(*row.ratio >= 10, "at least 10");
  return Status::ok();
}

// -- speculation

// Questions of one task, as prompts.
class Questions {
 public:
  static Result<Questions> read(const Service& service, const std::string& suite) {
    if (!service.chat_template()) return not_found("the model folder has no chat template");
    Questions q(service);
    LATHE_ASSIGN(q.items_, read_eval_suite(suite));
    return q;
  }

  Result<std::vector<Request>> of(const std::string& task, int count) const {
    std::vector<Request> requests;
    for (const EvalItem& item : items_) {
      if (item.task != task || static_cast<int>(requests.size()) == count) continue;
      LATHE_ASSIGN(const RenderedChat chat,
                   service_.chat_template()->render({.messages = item.messages.dump(),
                                                     .tools = item.tools.is_null() ? "" : item.tools.dump(),
                                                     .variables = ""}));
      Request r;
      LATHE_ASSIGN(r.prompt, chat.encode(service_.tokenizer()));
      r.max_tokens = 400;
      requests.push_back(std::move(r));
    }
    if (requests.empty()) return not_found("the suite has no task '{}'", task);
    return requests;
  }

 private:
  explicit Questions(const Service& service) : service_(service) {}
  const Service& service_;
  std::vector<EvalItem> items_;
};

// Microseconds of an output token behind the first, over a group of requests sent together.
Result<double> token_us(Service& service, const std::vector<Request>& group) {
  LoadClient client(service);
  const SteadyTime begin = Clock::now();
  for (const Request& r : group) client.send(r, begin);
  double us = 0;
  int tokens = 0;
  SteadyTime first = SteadyTime::max(), last = begin;
  for (const ServedTimes& t : client.take()) {
    if (t.failed || t.refused) return internal("a request of the bench failed");
    tokens += t.tokens - 1;
    if (t.tokens > 0) first = std::min(first, t.first), last = std::max(last, t.last);
  }
  us = std::chrono::duration<double, std::micro>(last - first).count();
  return tokens > 0 ? us / tokens : 0;
}

Status ServeBench::speculation() {
  LATHE_ASSIGN(const std::unique_ptr<Service> plain, Service::start(service_options(0)));
  LATHE_ASSIGN(const std::unique_ptr<Service> drafting, Service::start(service_options(options_.drafts)));
  LATHE_ASSIGN(const Questions questions,
               Questions::read(*plain, options_.suite.empty() ? options_.model + "/heldout.jsonl.gz" : options_.suite));
  struct Task {
    const char* name;
    int together;
    bool noise, gains;
  };
  const Task tasks[] = {{"copying-hard", 1, false, true}, {"tools", 1, false, true},    {"stories", 1, false, false},
                        {"arithmetic", 1, false, false},  {"noise", 1, true, false},    {"noise", 8, true, false},
                        {"noise", 64, true, false},       {"stories", 64, false, false}};
  for (const Task& task : tasks) {
    tell(fmt::format("speculation: {}, {} at once", task.name, task.together));
    std::vector<std::vector<Request>> groups;
    const int count = task.together == 64 ? 3 : options_.questions;
    if (task.noise) {
      LoadSource source(*plain, {.input = 64, .output = task.together == 64 ? 64 : 128, .seed = 7});
      for (int g = 0; g < count; ++g) {
        std::vector<Request>& group = groups.emplace_back();
        for (int i = 0; i < task.together; ++i) {
          LATHE_ASSIGN(Request r, source.next());
          r.sampling = {.temperature = 1.5f, .seed = static_cast<uint64_t>(g * 64 + i)};
          group.push_back(std::move(r));
        }
      }
    } else {
      LATHE_ASSIGN(std::vector<Request> all, questions.of(task.name, count * task.together));
      for (size_t i = 0; i < all.size(); ++i) {
        if (i % task.together == 0) groups.emplace_back();
        groups.back().push_back(std::move(all[i]));
      }
    }
    std::vector<double> without, with, gain;
    const ServiceStats before = drafting->stats();
    for (size_t g = 0; g < groups.size(); ++g) {
      double us[2] = {0, 0};
      for (const int turn : {0, 1, 1, 0}) {  // neither is always the first
        plain->flush_cache(), drafting->flush_cache();
        LATHE_ASSIGN(const double one, token_us(turn ? *drafting : *plain, groups[g]));
        us[turn] += one / 2;
      }
      if (us[0] <= 0 || us[1] <= 0) continue;  // answers of one token
      without.push_back(us[0]), with.push_back(us[1]), gain.push_back(us[0] / us[1]);
    }
    if (gain.empty()) continue;
    const std::string name = fmt::format("{}_rows{}", task.name, task.together);
    const Spread a = spread_of(without), b = spread_of(with);
    add_row(name, 0, a.median).spread_us = a.half_iqr;
    NumberRow& row = add_row(name, options_.drafts, b.median);
    row.spread_us = b.half_iqr, row.ratio = spread_of(gain).median;
    const auto counted = [&](const char* metric) {
      const auto value = [&](const ServiceStats& s) {
        double sum = 0;
        for (const Metric& m : s.metrics)
          if (m.name == metric) sum += m.value;
        return sum;
      };
      return value(drafting->stats()) - value(before);
    };
    const double drafted = counted("spec_draft_tokens_total"), accepted = counted("spec_accepted_tokens_total");
    row.note = fmt::format(
        "times as fast as without; {:.2f} of {:.0f} drafts right; {}", drafted > 0 ? accepted / drafted : 0, drafted,
        task.gains ? judged(*row.ratio >= 1.3, "at least 1.3") : judged(*row.ratio >= 0.97, "at least 0.97"));
  }
  return Status::ok();
}

// -- load

void ServeBench::report_load(const std::string& name, const LoadResult& result, const ServiceStats& before,
                             const ServiceStats& after) {
  std::vector<double> first, gaps, per_token;
  int errors = 0;
  double input = 0, output = 0, cached = 0;
  for (const ServedTimes& t : result.times) {
    errors += t.failed || t.refused;
    if (t.tokens == 0) continue;
    input += t.usage.prompt_tokens, output += t.tokens, cached += t.usage.cached_tokens;
    first.push_back(t.first_us());
    gaps.insert(gaps.end(), t.gap_us.begin(), t.gap_us.end());
    if (t.tokens > 1) per_token.push_back(t.decode_us() / (t.tokens - 1));
  }
  const auto percentiles = [&](const char* what, const std::vector<double>& values) {
    for (const int p : {50, 90, 99})
      add_row(fmt::format("{}/{}_p{}", name, what, p), options_.drafts, quantile(values, p / 100.0));
  };
  percentiles("ttft", first), percentiles("itl", gaps), percentiles("tpot", per_token);
  add_row(name + "/input", options_.drafts).tokens_per_s = input / result.seconds;
  add_row(name + "/output", options_.drafts).tokens_per_s = output / result.seconds;
  const auto ratio = [&](const char* what, double value, std::string note) {
    NumberRow& row = add_row(fmt::format("{}/{}", name, what), options_.drafts);
    row.ratio = value, row.note = std::move(note);
  };
  ratio("requests_per_s", static_cast<double>(result.times.size() - errors) / result.seconds, "requests a second");
  ratio("errors", static_cast<double>(errors) / static_cast<double>(result.times.size()),
        fmt::format("{} of {} requests", errors, result.times.size()));
  ratio("hits", input > 0 ? cached / input : 0, "of prompt tokens, found in the prefix cache");
  const auto length = [](const ServiceStats& s) {
    for (const Histogram& h : s.histograms)
      if (h.name == "spec_accept_length") {
        double count = 0;
        for (const uint64_t c : h.counts) count += static_cast<double>(c);
        return std::pair(h.sum, count);
      }
    return std::pair(0.0, 0.0);
  };
  const double steps = length(after).second - length(before).second;
  if (steps > 0)
    ratio("acceptance_length", (length(after).first - length(before).first) / steps, "tokens a verification step");
}

Status ServeBench::load() {
  LATHE_ASSIGN(const std::unique_ptr<Service> service, Service::start(service_options(options_.drafts)));
  LoadPlan plan = options_.plan;
  plan.per_second = 0;
  tell(fmt::format("closed loop of {}", plan.concurrency));
  ServiceStats before = service->stats();
  LATHE_ASSIGN(const LoadResult closed, run_load(*service, options_.shape, plan, {}));
  report_load("closed", closed, before, service->stats());
  const double rate = options_.rate > 0 ? options_.rate : 0.7 * plan.requests / closed.seconds;
  tell(fmt::format("open loop of {:.1f} requests a second", rate));
  plan.per_second = rate;
  LoadShape shape = options_.shape;
  shape.seed += 1 << 20;
  before = service->stats();
  LATHE_ASSIGN(const LoadResult open, run_load(*service, shape, plan, {}));
  report_load("open", open, before, service->stats());
  return Status::ok();
}

}  // namespace

const std::vector<std::string>& serve_bench_parts() {
  static const std::vector<std::string> parts = {"steps", "prefix", "speculation", "load"};
  return parts;
}

Result<std::vector<NumberRow>> serve_bench(const ServeBenchOptions& options, const ServeBenchProgress& progress) {
  ServeBench bench(options, progress);
  LATHE_RETURN_IF_ERROR(bench.run());
  return bench.take_rows();
}

}  // namespace lathe
