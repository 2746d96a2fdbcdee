#include "feedback/verify.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "feedback/verify_case.h"

namespace lathe {

namespace {

struct Planned {
  const AnyOp* op;
  int case_index;
};

Result<std::vector<Planned>> plan(std::span<const AnyOp> ops, const VerifyOptions& options) {
  std::vector<Planned> cases;
  bool matched = false;
  std::string names;
  for (const AnyOp& op : ops) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", op.name);
    if (fnmatch(options.ops.c_str(), op.name, 0) != 0) continue;
    matched = true;
    const std::string* choice = options.choices ? options.choices->find(op.name) : nullptr;
    if (choice && std::find(op.variants.begin(), op.variants.end(), *choice) == op.variants.end())
      return invalid("--variant {}={}: no such variant; there are {}", op.name, *choice, fmt::join(op.variants, ", "));
    for (int i = 0; i < static_cast<int>(op.cases.size()); ++i)
      if (options.long_cases || !op.cases[i].bench) cases.push_back({&op, i});
  }
  if (!matched) return invalid("no operator matches '{}'; there are {}", options.ops, names);
  return cases;
}

}  // namespace

Result<VerifyReport> verify(std::span<const AnyOp> ops, const VerifyOptions& options, const VerifyProgress& progress) {
  LATHE_ASSIGN(const std::vector<Planned> cases, plan(ops, options));
  LATHE_ASSIGN(std::unique_ptr<VerifyBench> bench, VerifyBench::create(options));
  VerifyReport report;
  for (int done = 0; done < static_cast<int>(cases.size()); ++done) {
    const auto [op, index] = cases[done];
    const CaseInfo& info = op->cases[index];
    if (progress) progress(op->name, info.name, done, static_cast<int>(cases.size()));
    const int seeds = info.bench ? 1 : options.seeds;
    for (int seed = 1; seed <= seeds; ++seed)
      if (Status s = bench->check(*op, index, seed, report); !s.is_ok())
        return s.within(fmt::format("{} {}", op->name, info.name));
  }
  return report;
}

}  // namespace lathe
