#include "feedback/selftest.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/progress.h"
#include "feedback/child_process.h"

namespace lathe {

namespace {

struct Options {
  SelftestOptions test;
  bool json = false;
};

using State = SelftestResult::State;

const char* state_name(State state) {
  return state == State::kPassed ? "ok" : state == State::kCantTell ? "can't tell" : "FAIL";
}

Outcome run(Options& o) {
  o.test.command = {own_binary(), "op-server"};
  const Result<std::vector<SelftestResult>> results = [&] {
    ProgressLine progress;
    return selftest(o.test, [&](int done, int all, const std::string& name) { progress.show(done, all, name); });
  }();
  if (!results.is_ok()) return results.status();
  const auto count = [&](State state) {
    return std::count_if(results->begin(), results->end(), [&](const SelftestResult& r) { return r.state == state; });
  };
  const auto failed = count(State::kFailed), unsure = count(State::kCantTell);
  if (o.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const SelftestResult& r : *results)
      all.push_back({{"name", r.name},
                     {"kind", r.kind},
                     {"what", r.what},
                     {"verdict", verdict_name(r.verdict)},
                     {"passed", r.passed()},
                     {"state", state_name(r.state)},
                     {"why", r.why}});
    fmt::print("{}\n", nlohmann::json{{"results", all}, {"failed", failed}, {"cant_tell", unsure}}.dump(2));
  } else {
    for (const SelftestResult& r : *results)
      fmt::print("{:<10} {:<12} {:<20} {}\n", state_name(r.state), r.kind, r.name, r.why.empty() ? r.what : r.why);
    fmt::print("{} of {} as they must be{}\n", count(State::kPassed), results->size(),
               failed   ? ": this harness may not judge"
               : unsure ? fmt::format("; can't tell of {}: something else keeps this machine busy", unsure)
                        : "");
  }
  return failed ? Exit::kInvalid : unsure ? Exit::kInconclusive : Exit::kAsAsked;
}

}  // namespace

void add_selftest(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("selftest", "May this harness judge? Planted cheats, slowdowns and honest candidates");
  sub->group(kMeasure);
  sub->add_option("names", o->test.only, "Planted candidates by name or glob")
      ->type_name("GLOB")
      ->capture_default_str();
  add_json_option(*sub, o->json);
  sub->footer(
      "Exit codes: 0 all as they must be, 12 can't tell on this machine now, 30 the harness may not "
      "judge.\nExamples:\n  lathe selftest\n  lathe selftest "
      "'cached_*'");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
