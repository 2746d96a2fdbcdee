#include "feedback/lab_concurrency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "feedback/collect_trace.h"
#include "feedback/expert_dispatch_lab.h"
#include "feedback/overlap.h"
#include "feedback/trace_writer.h"

namespace lathe {

namespace {

constexpr double kRule = 0.05, kEquivalent = 0.01;
constexpr int kMostBlocks = 27;  // where the first ones can't tell
constexpr int kEffectRuns = 3;

class Lab {
 public:
  Lab(const ConcurrencyLabOptions& options, const LabProgress& progress)
      : o_(options), progress_(progress), random_(options.seed), begin_ns_(monotonic_ns()) {
    report_.mended = o_.mended;
    stage_.hold_lock_across_wait = !o_.mended;
  }

  Result<ConcurrencyLabReport> run() {
    measure_rule();
    LATHE_RETURN_IF_ERROR(look_at_trace());
    if (!report_.rule_holds && !report_.lock.empty()) inject_delays();
    conclude();
    report_.seconds = static_cast<double>(monotonic_ns() - begin_ns_) / 1e9;
    return std::move(report_);
  }

 private:
  void say(const std::string& what) {
    if (progress_) progress_(what);
  }

  double time_ns(bool transfer, Recorder* probes) {
    DispatchLabOptions stage = stage_;
    stage.transfer = transfer, stage.probes = probes;
    return static_cast<double>(run_dispatch_lab(stage));
  }

  void measure_rule() {
    std::vector<double> differences;
    while (static_cast<int>(differences.size()) < o_.blocks || !decided()) {
      if (static_cast<int>(differences.size()) >= std::max(o_.blocks, kMostBlocks)) break;
      say(fmt::format("prefill with transfer against prefill alone, block {}", differences.size() + 1));
      const bool alone_first = random_() % 2 == 0;
      const double first = time_ns(!alone_first, nullptr), second = time_ns(alone_first, nullptr);
      differences.push_back(alone_first ? std::log(second / first) : std::log(first / second));
      if (differences.size() >= 6) report_.rule = paired_ratio(differences);
    }
    report_.rule_holds = report_.rule.high < 1 + kRule;
    report_.equivalent = report_.rule.high < 1 + kEquivalent && report_.rule.low > 1 - kEquivalent;
  }

  bool decided() const {
    const PairedRatio& r = report_.rule;
    return r.blocks > 0 && (r.low > 1 + kRule || (r.high < 1 + kEquivalent && r.low > 1 - kEquivalent));
  }

  Status look_at_trace() {
    say("a recorded run");
    Recorder recorder({});
    time_ns(true, &recorder);
    const Trace trace = collect(recorder, {{"command", "lab concurrency"}});
    if (!o_.trace_file.empty()) LATHE_RETURN_IF_ERROR(write_chrome(trace, o_.trace_file));
    LATHE_ASSIGN(const OverlapReport overlap, find_overlap(trace, {}));
    report_.findings = overlap.findings;
    for (const NeverOverlap& n : overlap.never)
      if (!n.lock.empty()) {
        report_.lock = n.lock, report_.holder = n.holder, report_.holder_span = n.holder_span;
        report_.held_across = n.held_across, report_.waiter = n.waiter;
      }
    return Status::ok();
  }

  // The same delay in every layer, once where the lock is free and once while it is held. If the lock is the cause,
  // only the first gives the transfer time to catch up.
  void inject_delays() {
    const int64_t delay = 2 * (stage_.chunk_us + stage_.next_chunk_us);
    for (const std::string& where : {std::string("nowhere"), std::string("attention"), "hold:" + report_.lock}) {
      say(fmt::format("delays injected at {}", where));
      Recorder::Options options{.level = ProbeLevel::kOff};
      if (where != "nowhere") options.injections = {Injection::parse(fmt::format("{}={}", where, delay)).value()};
      // Held longer, the lock would be taken by the sender for as long, too: only the prefill's holds are meant, and it
      // is the prefill alone that the difference takes off.
      Recorder recorder(options);
      std::vector<double> excess;
      for (int i = 0; i < kEffectRuns; ++i) {
        const double with = time_ns(true, &recorder), alone = time_ns(false, &recorder);
        excess.push_back((with - alone) / 1e6);
      }
      std::sort(excess.begin(), excess.end());
      report_.effects.push_back({where, where == "nowhere" ? 0 : delay, excess[excess.size() / 2]});
    }
    const double before = report_.effects[0].excess_ms;
    report_.proved = report_.effects[1].excess_ms < 0.4 * before && report_.effects[2].excess_ms > 0.7 * before;
  }

  void conclude() {
    const PairedRatio& r = report_.rule;
    if (r.low > 1 + kRule) {
      report_.defect = true;
      report_.verdict =
          report_.lock.empty()
              ? "the rule fails, and the trace names no lock: cause unknown"
              : fmt::format("lock '{}' is held by {} in {}{}, while {} waits for it{}", report_.lock, report_.holder,
                            report_.holder_span, report_.held_across.empty() ? "" : " across " + report_.held_across,
                            report_.waiter,
                            report_.proved ? " (A5: proved by injected delays)" : " (A3: not proved by injection)");
    } else if (report_.equivalent) {
      report_.verdict = "no defect";
    } else {
      report_.verdict = report_.rule_holds ? "no defect beyond 5 %; can't tell whether within 1 %" : "can't tell";
    }
  }

  const ConcurrencyLabOptions& o_;
  const LabProgress& progress_;
  std::mt19937_64 random_;
  int64_t begin_ns_;
  DispatchLabOptions stage_;
  ConcurrencyLabReport report_;
};

}  // namespace

Result<ConcurrencyLabReport> run_concurrency_lab(const ConcurrencyLabOptions& options, const LabProgress& progress) {
  if (options.blocks < 6) return invalid("--blocks {}: at least 6, or no interval has 96 %", options.blocks);
  return Lab(options, progress).run();
}

std::string to_text(const ConcurrencyLabReport& r) {
  const auto percent = [](double ratio) { return fmt::format("{:+.2f} %", 100 * (ratio - 1)); };
  std::string out = fmt::format(
      "{} twin: prefill with transfer against alone {} ({} .. {}, {} blocks): within 5 %: {}, within 1 %: {}\n",
      r.mended ? "mended" : "defective", percent(r.rule.median), percent(r.rule.low), percent(r.rule.high),
      r.rule.blocks,
      r.rule_holds        ? "yes"
      : r.rule.low > 1.05 ? "no"
                          : "can't tell",
      r.equivalent ? "yes" : "no");
  if (!r.findings.empty()) out += "what a recorded run shows\n";
  for (const std::string& f : r.findings) out += "  - " + f + "\n";
  if (!r.effects.empty()) out += "how late the last chunk is, with a delay in every layer\n";
  for (const DelayEffect& e : r.effects)
    out += e.delay_us == 0 ? fmt::format("  no delay                      {:7.1f} ms\n", e.excess_ms)
                           : fmt::format("  {:>5} us at {:<18} {:7.1f} ms\n", e.delay_us, e.where, e.excess_ms);
  out += fmt::format("verdict: {} ({:.0f} s)\n", r.verdict, r.seconds);
  return out;
}

nlohmann::json to_json(const ConcurrencyLabReport& r) {
  nlohmann::json effects = nlohmann::json::array();
  for (const DelayEffect& e : r.effects)
    effects.push_back({{"where", e.where}, {"delay_us", e.delay_us}, {"excess_ms", e.excess_ms}});
  return {{"kind", "lab"},
          {"schema", 1},
          {"lab", "concurrency"},
          {"mended", r.mended},
          {"rule", {{"median", r.rule.median}, {"low", r.rule.low}, {"high", r.rule.high}, {"blocks", r.rule.blocks}}},
          {"rule_holds", r.rule_holds},
          {"equivalent", r.equivalent},
          {"findings", r.findings},
          {"lock", r.lock},
          {"holder", r.holder},
          {"holder_span", r.holder_span},
          {"held_across", r.held_across},
          {"waiter", r.waiter},
          {"effects", effects},
          {"proved", r.proved},
          {"defect", r.defect},
          {"verdict", r.verdict},
          {"seconds", r.seconds}};
}

}  // namespace lathe
