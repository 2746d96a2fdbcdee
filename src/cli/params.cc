#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "feedback/parameters.h"
#include "ops/registry.h"

namespace lathe {

namespace {

Outcome run(bool json) {
  const std::vector<Parameter> all = launch_parameters(all_ops());
  if (json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Parameter& p : all) rows.push_back(to_json(p));
    fmt::print("{}\n", rows.dump(2));
    return Status::ok();
  }
  fmt::print("{:<26} {:<14} {:<26} {:<18} {:<16} {}\n", "parameter", "type", "range", "unit", "default", "numerics");
  for (const Parameter& p : all) {
    fmt::print("{:<26} {:<14} {:<26} {:<18} {:<16} {}\n", p.name, p.type, p.range, p.unit, p.fallback, p.numerics);
    fmt::print("    {}{}\n", p.meaning, p.needs.empty() ? "" : "; needs: " + p.needs);
  }
  fmt::print("All take effect at a start.\n");
  return Status::ok();
}

}  // namespace

void add_params(CLI::App& app, Chosen& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub =
      app.add_subcommand("params", "Launch parameters: range, default, unit, and whether results may change");
  sub->group(kMeasure);
  add_json_option(*sub, *json);
  sub->footer("Examples:\n  lathe params\n  lathe params --json");
  sub->callback([&chosen, json] { chosen.body = [json] { return run(*json); }; });
}

}  // namespace lathe
