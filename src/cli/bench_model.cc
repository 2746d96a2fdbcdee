#include "feedback/bench_model.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_command.h"
#include "cli/progress.h"
#include "feedback/child_process.h"

namespace lathe {

namespace {

struct Command {
  ModelBenchOptions bench;
  std::string format = "bf16";
  BenchReporting reporting;
  int lives = 3;
  RecordingOptions recording;
  bool one_life = false;  // this process is a life: it measures once and reports to its parent
};

Status print_life(ModelBenchOptions options, const RecordingOptions& recording) {
  LATHE_ASSIGN(options.probes, begin_recording(recording));
  LATHE_ASSIGN(const std::vector<NumberRow> rows, [&] {
    ProgressLine progress;
    return model_bench_life(options, [&](const std::string& what) { progress.show(0, 1, what); });
  }());
  nlohmann::json all = nlohmann::json::array();
  for (const NumberRow& row : rows) all.push_back(to_json(row));
  fmt::print("{}\n", all.dump());
  std::vector<std::pair<std::string, std::string>> settings = {
      {"command", "bench model"}, {"model", options.config}, {"threads", std::to_string(options.threads)}};
  for (const NumberRow& row : rows)
    if (row.roof_us && row.op == "model")
      settings.emplace_back("roof." + row.case_name, fmt::format("{}", *row.roof_us));
  return write_recording(options.probes.get(), recording, settings);
}

std::vector<std::string> life_command(const Command& c) {
  std::vector<std::string> argv = {own_binary(),
                                   "bench",
                                   "model",
                                   c.bench.config,
                                   "--format",
                                   c.format,
                                   "--one-life",
                                   "--threads",
                                   std::to_string(c.bench.threads),
                                   "--prefill",
                                   std::to_string(c.bench.prefill_tokens),
                                   "--steps",
                                   std::to_string(c.bench.decode_steps)};
  for (const std::string& v : c.bench.variants) argv.insert(argv.end(), {"--variant", v});
  if (!c.recording.file.empty())
    argv.insert(argv.end(), {"--trace", c.recording.file, "--trace-level", c.recording.level});
  for (const std::string& i : c.recording.inject) argv.insert(argv.end(), {"--inject", i});
  for (int context : c.bench.contexts) argv.insert(argv.end(), {"--context", std::to_string(context)});
  return argv;
}

Result<std::vector<NumberRow>> start_life(const Command& command) {
  LATHE_ASSIGN(const ChildOutput child, run_child(life_command(command)));
  if (child.exit_code == static_cast<int>(Exit::kUsage)) return invalid("the model can't be measured (see above)");
  if (child.exit_code != 0) return internal("a process life of the bench ended with exit code {}", child.exit_code);
  const nlohmann::json all = nlohmann::json::parse(child.stdout_text, nullptr, false);
  if (!all.is_array()) return internal("a process life of the bench printed no rows");
  std::vector<NumberRow> rows;
  for (const nlohmann::json& j : all) rows.push_back(number_row(j));
  return rows;
}

Outcome run_bench_model(const Command& command) {
  if (command.one_life) return print_life(command.bench, command.recording);
  std::vector<std::vector<NumberRow>> lives;
  const int lives_wanted = command.recording.file.empty() ? command.lives : 1;  // a trace is of one life
  for (int life = 0; life < lives_wanted; ++life) {
    fmt::print(stderr, "lathe: process life {} of {}\n", life + 1, lives_wanted);
    LATHE_ASSIGN(lives.emplace_back(), start_life(command));
  }
  return report_rows(command.reporting, merge_lives(lives));
}

}  // namespace

void add_bench_model(CLI::App& bench, Chosen& chosen) {
  auto command = std::make_shared<Command>();
  CLI::App* sub = bench.add_subcommand(
      "model", "A model of random weights from its configuration: decode, prefill, cost against context");
  sub->add_option("config", command->bench.config, "config.json of a model")
      ->required()
      ->check(CLI::ExistingFile)
      ->type_name("CONFIG");
  sub->add_option("--format", command->format, "Weights: bf16, w8a8-int8")
      ->check(CLI::IsMember({"bf16", "w8a8-int8"}))
      ->capture_default_str();
  sub->add_option("--context", command->bench.contexts,
                  "Context lengths to decode at (default: 1024 to 131072). Repeatable")
      ->check(CLI::Range(16, 1 << 24));
  sub->add_option("--prefill", command->bench.prefill_tokens, "Tokens of the prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--steps", command->bench.decode_steps, "Decode steps at each context")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--lives", command->lives, "Process lives; each gives one number")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_flag("--one-life", command->one_life, "Be one process life")->group("");
  add_threads_option(*sub, command->bench.threads);
  add_variant_option(*sub, command->bench.variants);
  add_recording_options(*sub, command->recording);
  add_bench_reporting(*sub, command->reporting);
  sub->footer(
      "Examples:\n"
      "  lathe bench model bench/configs/1b.json\n"
      "  lathe bench model bench/configs/1b.json --format w8a8-int8 --record\n"
      "  lathe bench model bench/configs/1b.json --context 1024 --lives 1 --json");
  sub->callback([&chosen, command] {
    command->bench.format =
        command->format == "bf16" ? glm5_next::WeightFormat::kPlain : glm5_next::WeightFormat::kRowInt8;
    chosen.body = [command] { return run_bench_model(*command); };
  });
}

}  // namespace lathe
