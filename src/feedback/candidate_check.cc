#include "feedback/candidate_check.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "feedback/spread.h"

namespace lathe {

namespace {

constexpr double kBenchSeconds = 0.1;  // of measured windows in a life
constexpr int64_t kSmallRotation = 1;  // verify: two copies of a case

struct Item {
  const AnyOp* op;
  int case_index;
  std::string variant;  // "": the candidate's default
};

class Check {
 public:
  Check(const CandidateOptions& options, bool timed) : o_(options), timed_(timed) {}

  Result<CandidateReport> run(std::span<const AnyOp> ops, const CandidateProgress& progress) {
    LATHE_ASSIGN(const std::string binary, candidate_binary(o_.build));
    LATHE_ASSIGN(report_.build_id, candidate_build_id(binary));
    command_ = {binary, "op-server"};
    const std::vector<Item> items = plan(ops);
    if (items.empty()) return invalid("no case matches operators '{}' and cases '{}'", o_.ops, o_.cases);
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      const Item& item = items[i];
      if (progress)
        progress(item.op->name + (" " + item.op->cases[item.case_index].name), i, static_cast<int>(items.size()));
      LATHE_RETURN_IF_ERROR(judge_item(item));
    }
    return std::move(report_);
  }

 private:
  std::vector<Item> plan(std::span<const AnyOp> ops) const {
    std::vector<Item> items;
    for (const AnyOp& op : ops) {
      if (fnmatch(o_.ops.c_str(), op.name, 0) != 0) continue;
      for (int c = 0; c < static_cast<int>(op.cases.size()); ++c) {
        const CaseInfo& info = op.cases[c];
        if (fnmatch(o_.cases.c_str(), info.name.c_str(), 0) != 0) continue;
        if (timed_ ? !info.bench : info.bench && !o_.long_cases) continue;
        for (const std::string& v : variants(op)) items.push_back({&op, c, v});
      }
    }
    return items;
  }
  std::vector<std::string> variants(const AnyOp& op) const {
    const std::string* choice = o_.choices ? o_.choices->find(op.name) : nullptr;
    if (choice) return {*choice};
    std::vector<std::string> all = {""};
    if (!timed_) all.insert(all.end(), op.variants.begin(), op.variants.end());
    return all;
  }

  Status judge_item(const Item& item) {
    const CaseInfo& info = item.op->cases[item.case_index];
    // Variants of a case share its trial: building it takes longer than a life.
    if (!trial_ || &trial_->op() != item.op || &trial_->info() != &info) {
      TrialOptions options{.threads = o_.threads, .secret = o_.secret + trials_++};
      if (timed_)
        options.seconds = kBenchSeconds;
      else
        options.timed = false, options.seconds = 0, options.fewest_windows = 1, options.rotation_bytes = kSmallRotation;
      LATHE_ASSIGN(trial_, OpTrial::create(*item.op, item.case_index, options));
      shown_.clear();
    }
    std::vector<double> us;
    TrialResult last;
    for (int life = 0; life < (timed_ ? o_.lives : 1); ++life) {
      LATHE_ASSIGN(last, trial_->measure(command_, item.variant, o_.threads, report_.build_id, life == 0));
      if (last.trouble && last.trouble->verdict == Verdict::kInvalid && !item.variant.empty()) {
        report_.left_out.push_back(last.trouble->why);
        return Status::ok();
      }
      if (last.trouble) {
        report_.troubles.push_back({item.op->name, item.variant.empty() ? "default" : item.variant, info.name,
                                    last.trouble->verdict, last.trouble->why});
        return Status::ok();
      }
      if (!last.applies) return Status::ok();
      us.push_back(last.median_us);
    }
    if (!shown_.insert(last.variant).second) return Status::ok();  // the default goes by its name, too
    NumberRow row{.op = item.op->name,
                  .variant = last.variant,
                  .case_name = info.name,
                  .device = "cpu",
                  .bytes = static_cast<double>(info.bytes),
                  .flop = static_cast<double>(info.flop),
                  .error_ratio = last.error_ratio,
                  .error_of_tolerance = info.tolerance > 0 ? last.error_ratio / info.tolerance : 0};
    if (timed_) {
      const Spread time = spread_of(us);
      row.median_us = time.median, row.spread_us = time.half_iqr;
      row.roof_us = trial_->roof().us(info), row.roof_fraction = *row.roof_us / time.median;
    }
    report_.rows.push_back(row);
    return Status::ok();
  }

  const CandidateOptions& o_;
  const bool timed_;
  std::vector<std::string> command_;
  CandidateReport report_;
  std::unique_ptr<OpTrial> trial_;
  std::set<std::string> shown_;  // variants of this case that have a row
  int trials_ = 0;
};

}  // namespace

Result<CandidateReport> verify_candidate(std::span<const AnyOp> ops, const CandidateOptions& options,
                                         const CandidateProgress& progress) {
  return Check(options, false).run(ops, progress);
}

Result<CandidateReport> bench_candidate(std::span<const AnyOp> ops, const CandidateOptions& options,
                                        const CandidateProgress& progress) {
  return Check(options, true).run(ops, progress);
}

}  // namespace lathe
