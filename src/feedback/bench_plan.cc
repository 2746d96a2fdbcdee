#include "feedback/bench_plan.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

namespace lathe {

namespace {

bool matches(const std::string& glob, const std::string& name) { return fnmatch(glob.c_str(), name.c_str(), 0) == 0; }

Result<std::vector<int>> timed_variants(const AnyOp& op, DeviceKind device, const Choices* choices) {
  const std::string* choice = choices ? choices->find(op.name) : nullptr;
  std::vector<int> timed;
  for (int v = 0; v < static_cast<int>(op.variants.size()); ++v)
    if (op.on[v] != device)
      continue;
    else if (choice ? *choice == op.variants[v] : op.variants[v] != "reference" || op.variants.size() == 1)
      timed.push_back(v);
  if (timed.empty())
    return invalid("--variant {}={}: no such variant; there are {}", op.name, *choice, fmt::join(op.variants, ", "));
  return timed;
}

}  // namespace

Result<std::vector<BenchItem>> bench_plan(std::span<const AnyOp> ops, const BenchOptions& options) {
  std::vector<BenchItem> items;
  std::vector<std::string> names;
  for (const AnyOp& op : ops) {
    names.push_back(op.name);
    if (!matches(options.ops, op.name)) continue;
    LATHE_ASSIGN(const std::vector<int> variants, timed_variants(op, options.device, options.choices));
    for (int c = 0; c < static_cast<int>(op.cases.size()); ++c)
      if (op.cases[c].bench && matches(options.cases, op.cases[c].name))
        for (int v : variants) items.push_back({&op, c, v});
  }
  if (items.empty())
    return invalid("no case of real size matches operators '{}' and cases '{}'; operators are {}", options.ops,
                   options.cases, fmt::join(names, ", "));
  return items;
}

}  // namespace lathe
