#include "feedback/bench_ops.h"

#include <algorithm>
#include <map>

#include "feedback/spread.h"
#include "feedback/verify.h"

namespace lathe {

namespace {

// The oracle is plain loops in double, about 1e8 operations a second. Larger cases take the error of their twins: the
// operator's small cases with the same tolerance.
constexpr int64_t kOracleFlop = 30'000'000;

// Below this share of what the best sample of the ceilings allows, a time can't be true. The rest is the ceilings'
// noise.
constexpr double kImpossible = 0.9;

struct Error {
  double ratio = 0, of_tolerance = 0;
  std::string from;  // "" : the case itself
  bool known = false;
};

// Errors by (operator, variant, case), each found once.
class Errors {
 public:
  explicit Errors(const BenchOptions& options) : options_(options) {}

  Result<Error> of(const BenchItem& item) {
    const bool affordable = item.info().flop <= kOracleFlop;
    Error worst;
    for (int c = 0; c < static_cast<int>(item.op->cases.size()); ++c) {
      const CaseInfo& info = item.op->cases[c];
      const bool wanted = affordable ? c == item.case_index : !info.bench && info.tolerance == item.info().tolerance;
      if (!wanted) continue;
      LATHE_ASSIGN(const Error e, measure(item, c));
      if (e.known && (!worst.known || e.ratio > worst.ratio)) worst = e;
    }
    if (affordable) worst.from.clear();
    return worst;
  }

 private:
  Result<Error> measure(const BenchItem& item, int case_index) {
    const std::string key = fmt::format("{} {} {}", item.op->name, item.variant_name(), case_index);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    AnyOp one = *item.op;
    one.cases = {item.op->cases[case_index]};
    one.build = [op = item.op, case_index](int, CaseBuilder& b) { return op->build(case_index, b); };
    Choices choice;
    LATHE_RETURN_IF_ERROR(choice.add(fmt::format("{}={}", one.name, item.variant_name())));
    VerifyOptions options{.device = options_.device_name(),
                          .threads = options_.threads,
                          .seeds = 1,
                          .long_cases = true,
                          .choices = &choice};
    LATHE_ASSIGN(const VerifyReport report, verify(std::span(&one, 1), options, nullptr));
    Error error;
    if (!report.rows.empty())
      error = {*report.rows[0].error_ratio, *report.rows[0].error_of_tolerance, item.op->cases[case_index].name, true};
    return known_[key] = error;
  }

  const BenchOptions& options_;
  std::map<std::string, Error> known_;
};

struct Samples {
  std::vector<double> us, roof_us;
  double fastest_us = 0;  // no life could be faster
};

NumberRow row_of(const BenchItem& item, const BenchOptions& options, const Samples& samples) {
  const Spread time = spread_of(samples.us), roof = spread_of(samples.roof_us);
  return {.op = item.op->name,
          .variant = item.variant_name(),
          .case_name = item.info().name,
          .device = options.device_name(),
          .median_us = time.median,
          .spread_us = time.half_iqr,
          .bytes = static_cast<double>(item.info().bytes),
          .flop = static_cast<double>(item.info().flop),
          .roof_us = roof.median,
          .roof_fraction = roof.median / time.median};
}

}  // namespace

Result<BenchReport> bench_ops(const std::vector<BenchItem>& plan, const BenchOptions& options, const StartLife& start) {
  std::map<int, Samples> by_item;
  BenchReport report;
  for (int life = 0; life < options.lives; ++life) {
    LATHE_ASSIGN(const std::vector<LifeTiming> timings, start(life));
    for (const LifeTiming& t : timings) {
      if (t.item < 0 || t.item >= static_cast<int>(plan.size()))
        return internal("a process life timed item {} of {}", t.item, plan.size());
      const CaseInfo& info = plan[t.item].info();
      Samples& s = by_item[t.item];
      s.us.push_back(t.median_us);
      s.roof_us.push_back(t.roof.us(info));
      const double fastest = t.roof.fastest_us(info);
      s.fastest_us = s.us.size() == 1 ? fastest : std::min(s.fastest_us, fastest);
      report.rotated_bytes = std::max(report.rotated_bytes, t.rotated_bytes);
    }
  }
  Errors errors(options);
  for (const auto& [index, samples] : by_item) {
    const BenchItem& item = plan[index];
    NumberRow row = row_of(item, options, samples);
    LATHE_ASSIGN(const Error error, errors.of(item));
    if (error.known) row.error_ratio = error.ratio, row.error_of_tolerance = error.of_tolerance;
    if (!error.from.empty()) row.note = "error from " + error.from;
    if (*row.median_us < kImpossible * samples.fastest_us) {
      report.refused.push_back(fmt::format("{} {} {}: {:.3g} us, but this machine needs {:.3g} us at least", row.op,
                                           row.variant, row.case_name, *row.median_us, samples.fastest_us));
      row.median_us = row.spread_us = row.roof_fraction = std::nullopt;
      row.note = "refused: faster than the machine's ceilings";
    }
    report.rows.push_back(row);
  }
  return report;
}

}  // namespace lathe
