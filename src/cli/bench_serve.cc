#include "feedback/bench_serve.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/bench_command.h"
#include "cli/progress.h"

namespace lathe {

namespace {

struct Command {
  ServeBenchOptions bench;
  BenchReporting reporting;
};

Outcome run_bench_serve(const Command& c) {
  LATHE_ASSIGN(const std::vector<NumberRow> rows, [&] {
    ProgressLine progress;
    return serve_bench(c.bench, [&](const std::string& what) { progress.show(0, 1, what); });
  }());
  return report_rows(c.reporting, rows);
}

}  // namespace

void add_bench_serve(CLI::App& bench, Chosen& chosen) {
  auto c = std::make_shared<Command>();
  ServeBenchOptions& o = c->bench;
  CLI::App* sub = bench.add_subcommand("serve", "A service: steps against roofs, prefix cache, speculation, load");
  sub->add_option("--model", o.model, "Folder of a checkpoint, with a chat template")
      ->required()
      ->check(CLI::ExistingDirectory)
      ->type_name("FOLDER");
  sub->add_option("--part", o.parts, "Only this: steps, prefix, speculation, load. Repeatable")
      ->check(CLI::IsMember(serve_bench_parts()));
  sub->add_option("--drafts", o.drafts, "Tokens drafted at most, where drafts are on")
      ->check(CLI::Range(1, 7))
      ->capture_default_str();
  sub->add_option("--steps", o.steps, "Steps of a batch size")->check(CLI::Range(8, 1 << 16))->capture_default_str();
  sub->add_option("--suite", o.suite, "Questions for speculation (default: heldout.jsonl.gz of the model folder)")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  sub->add_option("--questions", o.questions, "Questions of a task")->check(CLI::Range(1, 1000))->capture_default_str();
  sub->add_option("--requests", o.plan.requests, "Requests of each loop of the load")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--concurrency", o.plan.concurrency, "Requests in flight in the closed loop")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--rate", o.rate, "Requests a second of the open loop (default: 0.7 of what the closed loop got)")
      ->check(CLI::PositiveNumber)
      ->group("Load");
  sub->add_option("--input", o.shape.input, "Tokens of a prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--output", o.shape.output, "Tokens of an output")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--shared", o.shape.shared, "Share of a prompt that all have in common")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--pictures", o.shape.pictures, "Share of requests with a picture")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group("Load");
  sub->add_option("--seed", o.shape.seed, "Of prompts, draws and arrivals")->capture_default_str()->group("Load");
  add_threads_option(*sub, o.threads);
  add_variant_option(*sub, o.variants);
  add_bench_reporting(*sub, c->reporting);
  sub->footer(
      "In one process, without HTTP. Latencies of the open loop count from when a request was due.\n"
      "Examples:\n"
      "  lathe bench serve --model models/demo\n"
      "  lathe bench serve --model models/demo --part steps --part prefix --json\n"
      "  lathe bench serve --model models/demo --part load --rate 20 --shared 0.5 --pictures 0.1");
  sub->callback([&chosen, c] { chosen.body = [c] { return run_bench_serve(*c); }; });
}

}  // namespace lathe
