#include "feedback/bench_ops.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/bench_command.h"
#include "cli/progress.h"
#include "feedback/candidate_check.h"
#include "feedback/child_process.h"
#include "feedback/machine_facts.h"
#include "ops/registry.h"

namespace lathe {

namespace {

struct Command {
  BenchOptions bench;
  RunOptions run;
  BenchReporting reporting;
  std::string candidate;
  bool one_life = false;  // this process is a life: it times once and reports to its parent
};

Status print_life(const std::vector<BenchItem>& plan, const BenchOptions& options) {
  ProgressLine progress;
  const auto show = [&](int item) {
    progress.show(item, static_cast<int>(plan.size()), plan[item].info().name + " " + plan[item].variant_name());
  };
  LATHE_ASSIGN(const std::vector<LifeTiming> timings, options.device == DeviceKind::kCuda
                                                          ? bench_card_life(plan, show)
                                                          : bench_life(plan, options.threads, show));
  nlohmann::json all = nlohmann::json::array();
  for (const LifeTiming& t : timings) all.push_back(to_json(t));
  fmt::print("{}\n", all.dump());
  return Status::ok();
}

std::vector<std::string> life_command(const Command& command) {
  std::vector<std::string> argv = {own_binary(),
                                   "bench",
                                   "ops",
                                   command.bench.ops,
                                   "--cases",
                                   command.bench.cases,
                                   "--one-life",
                                   "--threads",
                                   std::to_string(command.run.threads),
                                   "--device",
                                   command.bench.device_name()};
  for (const std::string& v : command.run.variants) argv.insert(argv.end(), {"--variant", v});
  return argv;
}

Result<std::vector<LifeTiming>> start_life(const Command& command) {
  LATHE_ASSIGN(const ChildOutput child, run_child(life_command(command)));
  if (child.exit_code != 0) return internal("a process life of the bench ended with exit code {}", child.exit_code);
  const nlohmann::json all = nlohmann::json::parse(child.stdout_text, nullptr, false);
  if (!all.is_array()) return internal("a process life of the bench printed no timings");
  std::vector<LifeTiming> timings;
  for (const nlohmann::json& j : all) timings.push_back(life_timing(j));
  return timings;
}

// Wrong results have no time.
Outcome run_candidate(const Command& command, const Choices& choices) {
  LATHE_ASSIGN(const CandidateReport report, [&] {
    ProgressLine progress;
    return bench_candidate(all_ops(),
                           {.build = command.candidate,
                            .ops = command.bench.ops,
                            .cases = command.bench.cases,
                            .choices = &choices,
                            .threads = command.run.threads,
                            .lives = command.bench.lives,
                            .secret = std::random_device()()},
                           [&](const std::string& what, int done, int all) { progress.show(done, all, what); });
  }());
  fmt::print(stderr, "lathe: build {}\n", report.build_id);
  LATHE_RETURN_IF_ERROR(report_rows(command.reporting, report.rows));
  bool wrong = false;
  for (const CandidateTrouble& t : report.troubles) {
    fmt::print(stderr, "lathe: {}: {}\n", verdict_words(t.verdict), t.why);
    wrong |= t.verdict == Verdict::kIncorrect;
  }
  return report.troubles.empty() ? Exit::kAsAsked : wrong ? Exit::kIncorrect : Exit::kRefused;
}

Outcome run_bench_ops(Command& command) {
  Choices choices;
  LATHE_RETURN_IF_ERROR(add_choices(command.run.variants, choices));
  if (!command.candidate.empty()) return run_candidate(command, choices);
  command.bench.choices = &choices;
  command.bench.threads = command.run.threads;
  command.bench.device = command.run.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  LATHE_ASSIGN(const std::vector<BenchItem> plan, bench_plan(all_ops(), command.bench));
  if (command.one_life) return print_life(plan, command.bench);

  LATHE_ASSIGN(const BenchReport report, bench_ops(plan, command.bench, [&](int life) {
                 fmt::print(stderr, "lathe: process life {} of {}\n", life + 1, command.bench.lives);
                 return start_life(command);
               }));
  if (command.bench.device == DeviceKind::kCpu && report.rotated_bytes < 4 * machine_facts().last_cache_bytes)
    fmt::print(stderr,
               "lathe: buffers rotate over {} MB only, memory allows no more (4 times the last cache is {} MB)\n",
               report.rotated_bytes >> 20, 4 * machine_facts().last_cache_bytes >> 20);
  LATHE_RETURN_IF_ERROR(report_rows(command.reporting, report.rows));
  for (const std::string& refused : report.refused) fmt::print(stderr, "lathe: refused: {}\n", refused);
  return report.refused.empty() ? Exit::kAsAsked : Exit::kRefused;
}

}  // namespace

void add_bench_ops(CLI::App& bench, Chosen& chosen) {
  auto command = std::make_shared<Command>();
  CLI::App* sub = bench.add_subcommand(
      "ops", "Operators at real sizes, cold: medians over process lives, against measured ceilings");
  sub->add_option("operators", command->bench.ops, "Operators by name or glob")
      ->type_name("GLOB")
      ->capture_default_str();
  sub->add_option("--cases", command->bench.cases, "Cases by name or glob")->type_name("GLOB")->capture_default_str();
  sub->add_option("--lives", command->bench.lives, "Process lives; each gives one number")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--candidate", command->candidate,
                  "Another build, measured from outside: a lathe binary, or a folder that holds one")
      ->type_name("BUILD");
  sub->add_flag("--one-life", command->one_life, "Be one process life")->group("");
  add_threads_option(*sub, command->run.threads);
  sub->add_option("--device", command->run.device, "Where to compute: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  add_variant_option(*sub, command->run.variants);
  add_bench_reporting(*sub, command->reporting);
  sub->footer(
      "Exit codes: 0 measured, 20 a candidate's results are wrong, 31 a result was refused: faster than the machine's "
      "ceilings, say.\n"
      "Examples:\n"
      "  lathe bench ops\n"
      "  lathe bench ops kda_decode --lives 9\n"
      "  lathe bench ops kda_decode --candidate ../other/build/release\n"
      "  lathe bench ops linear --variant linear=avx512 --record");
  sub->callback([&chosen, command] { chosen.body = [command] { return run_bench_ops(*command); }; });
}

}  // namespace lathe
