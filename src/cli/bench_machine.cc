#include "feedback/bench_machine.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/bench_command.h"
#include "cli/progress.h"
#include "feedback/machine_facts.h"

namespace lathe {

namespace {

struct Command {
  RunOptions run;
  BenchReporting reporting;
};

Outcome run_bench_machine(const Command& command) {
  MachineOptions options{.threads = command.run.threads};
  while (options.largest_bytes > available_memory_bytes() / 2 && options.largest_bytes > (int64_t{16} << 20))
    options.largest_bytes /= 4;
  Result<std::vector<NumberRow>> rows = [&] {
    ProgressLine progress;
    return bench_machine(options, [&](const std::string& what, int done, int all) { progress.show(done, all, what); });
  }();
  if (!rows.is_ok()) return rows.status();
  if (options.largest_bytes < int64_t{1} << 30)
    fmt::print(stderr, "lathe: free memory allows working sets up to {} MB only\n", options.largest_bytes >> 20);
  return report_rows(command.reporting, *rows);
}

}  // namespace

void add_bench_machine(CLI::App& bench, Chosen& chosen) {
  auto command = std::make_shared<Command>();
  CLI::App* sub = bench.add_subcommand(
      "machine", "Bandwidth at working sets from 1 MB to 1 GB, dot products in fp32, bf16 and int8");
  add_threads_option(*sub, command->run.threads);
  add_bench_reporting(*sub, command->reporting);
  sub->footer("Examples:\n  lathe bench machine\n  lathe bench machine --threads 1 --json");
  sub->callback([&chosen, command] { chosen.body = [command] { return run_bench_machine(*command); }; });
}

}  // namespace lathe
