#include "feedback/lab_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/probe.h"
#include "feedback/kda_oracle_state.h"
#include "feedback/machine_facts.h"
#include "feedback/spread.h"

namespace lathe {

namespace {

constexpr int64_t kStateBytes = int64_t{4} * ReplayTilesLab::kDim * ReplayTilesLab::kDim;
constexpr double kTolerance = 1e-5;  // kda_replay's contract in fp32
constexpr double kMatters = 0.95;    // a step that brings less than 5 % isn't worth a name
constexpr int kMostBlocks = 27;      // where the first ones can't tell
constexpr int kWarmTimes = 200;

int cold_heads() {
  return static_cast<int>(std::clamp(4 * machine_facts().last_cache_bytes / kStateBytes, int64_t{256}, int64_t{1024}));
}

class Lab {
 public:
  Lab(const KernelLabOptions& options, const LabProgress& progress)
      : o_(options),
        progress_(progress),
        random_(options.seed),
        begin_ns_(monotonic_ns()),
        heads_(options.heads > 0 ? options.heads : cold_heads()),
        stage_(heads_, options.seed) {
    r_.mended = o_.mended;
    ReplayTilesOptions form;
    if (o_.mended) form = {.v_tiles = 1, .divide = false, .decay_records = false};
    add_form("", form);
    if (form.divide) form.divide = false, add_form("division", form);
    if (form.v_tiles > 1) form.v_tiles = 1, add_form("merge", form);
    if (form.decay_records) form.decay_records = false, add_form("pre-decay", form);
    if (r_.forms.size() == 1) add_form("nothing", form);  // against itself
  }

  Result<KernelLabReport> run() {
    check_results();
    measure_roof();
    measure_warm();
    measure_steps();
    conclude();
    r_.seconds = static_cast<double>(monotonic_ns() - begin_ns_) / 1e9;
    return std::move(r_);
  }

 private:
  void say(const std::string& what) {
    if (progress_) progress_(what);
  }
  void add_form(const std::string& exchange, const ReplayTilesOptions& options) {
    r_.forms.push_back({.exchange = exchange, .options = options, .work = replay_tiles_work(options)});
  }

  // A step that changes the result is no step.
  void check_results() {
    say("results against doubles");
    ReplayTilesLab few(8, o_.seed);
    const std::vector<double> oracle = few.oracle();
    for (auto& form : r_.forms) {
      few.step(form.options, out_);
      ErrorRatio e;
      for (size_t i = 0; i < oracle.size(); ++i) e.add(out_[i], oracle[i]);
      form.error = e.value();
    }
  }

  // By the same clock as the steps.
  void measure_roof() {
    say("the rate at which one thread reads the states");
    std::vector<double> rates;
    float sum = 0;
    for (int i = 0; i < 7; ++i)
      rates.push_back(static_cast<double>(stage_.state_bytes()) / static_cast<double>(stage_.read_states(sum)) * 1e9);
    out_.assign(1, sum);  // it was needed
    r_.bytes_per_s = spread_of(rates).median;
    r_.roof_us = static_cast<double>(r_.forms[0].work.bytes) / r_.bytes_per_s * 1e6;
  }

  void measure_warm() {
    for (auto& form : r_.forms) {
      std::vector<double> us;
      for (int i = 0; i < 5; ++i)
        us.push_back(static_cast<double>(stage_.step_one_head(form.options, kWarmTimes, out_)) / 1e3 / kWarmTimes);
      form.warm_us = spread_of(us).median;
    }
  }

  // A block is every form once, in an order drawn anew.
  void measure_steps() {
    const size_t forms = r_.forms.size();
    std::vector<std::vector<double>> ns(forms);
    while (static_cast<int>(ns[0].size()) < o_.blocks || !decided()) {
      if (static_cast<int>(ns[0].size()) >= std::max(o_.blocks, kMostBlocks)) break;
      say(fmt::format("all forms, block {}", ns[0].size() + 1));
      std::vector<size_t> order(forms);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      for (size_t f : order) ns[f].push_back(static_cast<double>(stage_.step(r_.forms[f].options, out_)));
      if (ns[0].size() < 6) continue;
      for (size_t f = 0; f < forms; ++f) {
        r_.forms[f].us = spread_of(ns[f]).median / 1e3 / heads_;
        if (f > 0) r_.forms[f].ratio = ratio(ns[f], ns[f - 1]);
      }
      r_.all = ratio(ns.back(), ns[0]);
    }
  }
  static PairedRatio ratio(const std::vector<double>& later, const std::vector<double>& earlier) {
    std::vector<double> d;
    for (size_t i = 0; i < later.size(); ++i) d.push_back(std::log(later[i] / earlier[i]));
    return paired_ratio(d);
  }
  bool decided() const { return r_.all.blocks > 0 && (r_.all.high < kMatters || r_.all.low > kMatters); }

  void conclude() {
    const KernelLabReport::Form& start = r_.forms[0];
    ReplayTilesOptions one_tile = start.options;
    one_tile.v_tiles = 1;
    r_.repeated =
        static_cast<double>(start.work.exponentials) / static_cast<double>(replay_tiles_work(one_tile).exponentials);
    r_.compute_bound = start.us > 1.5 * r_.roof_us && start.warm_us > 0.75 * start.us;
    const bool right =
        std::all_of(r_.forms.begin(), r_.forms.end(), [](const auto& f) { return f.error < kTolerance; });
    if (!right) {
      r_.verdict = "a step changes the result: no verdict";
      return;
    }
    const auto merge =
        std::find_if(r_.forms.begin(), r_.forms.end(), [](const auto& f) { return f.exchange == "merge"; });
    if (r_.all.low > kMatters) {
      r_.verdict = "no defect";
    } else if (merge != r_.forms.end() && r_.repeated > 1 && merge->ratio.high < kMatters && r_.compute_bound) {
      r_.defect = r_.proved = true;
      r_.verdict = fmt::format(
          "replay step of KDA in {} tiles of V: each tile normalises the token, takes its gates and decays the records "
          "again, {:.1f} times the exponentials that one needs; {:.1f} times its byte roof, bound by computing; merged "
          "tiles take {:.2f} of the time, all three steps {:.2f} (A4)",
          start.options.v_tiles, r_.repeated, start.us / r_.roof_us, merge->ratio.median, r_.all.median);
    } else {
      r_.verdict = "can't tell";
    }
  }

  const KernelLabOptions& o_;
  const LabProgress& progress_;
  std::mt19937_64 random_;
  int64_t begin_ns_;
  const int heads_;
  ReplayTilesLab stage_;
  std::vector<float> out_;
  KernelLabReport r_;
};

}  // namespace

Result<KernelLabReport> run_kernel_lab(const KernelLabOptions& options, const LabProgress& progress) {
  if (options.blocks < 6) return invalid("--blocks {}: at least 6, or no interval has 96 %", options.blocks);
  return Lab(options, progress).run();
}

std::string to_text(const KernelLabReport& r) {
  const KernelLabReport::Form& start = r.forms[0];
  std::string out = fmt::format(
      "{} twin: {}\n  {:.1f} us a head; its {:.0f} KB could be read in {:.1f} us at {:.1f} GB/s, measured on one "
      "thread; "
      "from the nearest cache it takes {:.1f} us: {}\n",
      r.mended ? "mended" : "defective", start.options.name(), start.us, static_cast<double>(start.work.bytes) / 1024,
      r.roof_us, r.bytes_per_s / 1e9, start.warm_us,
      r.compute_bound ? "bound by computing" : "not bound by computing alone");
  out += fmt::format("  exponentials: {:.1f} times those that one tile of V needs\n", r.repeated);
  out += fmt::format("  {:<44} {:>8} {:>8} {:>6} {:>6} {:>7} {:>9}   {}\n", "form", "us/head", "of roof", "exp", "div",
                     "mul", "error", "against the form before");
  for (const auto& f : r.forms) {
    const std::string ratio = f.exchange.empty() ? ""
                                                 : fmt::format("{}: {:.3f} ({:.3f} .. {:.3f})", f.exchange,
                                                               f.ratio.median, f.ratio.low, f.ratio.high);
    out += fmt::format("  {:<44} {:>8.1f} {:>7.0f}% {:>6} {:>6} {:>7} {:>9.1e}   {}\n", f.options.name(), f.us,
                       100 * r.roof_us / f.us, f.work.exponentials, f.work.divisions, f.work.products, f.error, ratio);
  }
  return out + fmt::format("verdict: {} ({:.0f} s)\n", r.verdict, r.seconds);
}

nlohmann::json to_json(const KernelLabReport& r) {
  const auto ratio = [](const PairedRatio& p) {
    return nlohmann::json{{"median", p.median}, {"low", p.low}, {"high", p.high}, {"blocks", p.blocks}};
  };
  nlohmann::json forms = nlohmann::json::array();
  for (const auto& f : r.forms)
    forms.push_back({{"exchange", f.exchange},
                     {"name", f.options.name()},
                     {"exponentials", f.work.exponentials},
                     {"divisions", f.work.divisions},
                     {"products", f.work.products},
                     {"bytes", f.work.bytes},
                     {"us", f.us},
                     {"warm_us", f.warm_us},
                     {"error", f.error},
                     {"ratio", ratio(f.ratio)}});
  return {{"kind", "lab"},
          {"schema", 1},
          {"lab", "kernel"},
          {"mended", r.mended},
          {"bytes_per_s", r.bytes_per_s},
          {"roof_us", r.roof_us},
          {"forms", forms},
          {"all", ratio(r.all)},
          {"repeated", r.repeated},
          {"compute_bound", r.compute_bound},
          {"proved", r.proved},
          {"defect", r.defect},
          {"verdict", r.verdict},
          {"seconds", r.seconds}};
}

}  // namespace lathe
