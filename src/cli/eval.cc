#include "feedback/eval.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/progress.h"

namespace lathe {

namespace {

struct Options {
  EvalOptions eval;
  std::string suite = "demo";
  std::vector<std::string> compare;
  double at_least = 0;  // percent
  bool json = false;
  RunOptions run;
  RecordingOptions recording;
};

std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

void print_run(const EvalRun& run) {
  fmt::print("{:<20} {:>8} {:>9}   {:<17} {:>10}\n", "task", "answers", "right", "95 % interval", "acceptance");
  int64_t tokens = 0;
  for (const EvalTask& t : tasks_of(run))
    fmt::print("{:<20} {:>8} {:>9}   {:<17} {:>10}\n", t.name, t.accuracy.all, percent(t.accuracy.value()),
               fmt::format("{} .. {}", percent(t.accuracy.low()), percent(t.accuracy.high())),
               t.acceptance_length ? fmt::format("{:.2f}", t.acceptance_length) : "-");
  for (const EvalMarked& a : run.answers) tokens += a.tokens;
  fmt::print("\n{} ({}): {} answers, {} tokens in {:.1f} s, {:.0f} tokens/s\n", run.model, run.setting,
             run.answers.size(), tokens, run.seconds, static_cast<double>(tokens) / run.seconds);
}

Outcome print_comparison(const std::vector<std::string>& files, bool json) {
  LATHE_ASSIGN(const EvalRun a, read_eval_run(files[0]));
  LATHE_ASSIGN(const EvalRun b, read_eval_run(files[1]));
  LATHE_ASSIGN(const auto changes, compare_eval_runs(a, b));
  if (json) {
    nlohmann::json out = nlohmann::json::array();
    for (const EvalChange& c : changes)
      out.push_back({{"task", c.task},
                     {"a", c.a.value()},
                     {"b", c.b.value()},
                     {"answers", c.a.all},
                     {"lost", c.lost},
                     {"won", c.won},
                     {"p", c.p}});
    fmt::print("{}\n", out.dump());
    return Status::ok();
  }
  fmt::print("A: {} ({})\nB: {} ({})\n\n{:<20} {:>8} {:>9} {:>9} {:>6} {:>6} {:>8}\n", a.model, a.setting, b.model,
             b.setting, "task", "answers", "A", "B", "lost", "won", "p");
  for (const EvalChange& c : changes)
    fmt::print("{:<20} {:>8} {:>9} {:>9} {:>6} {:>6} {:>8.3f}  {}\n", c.task, c.a.all, percent(c.a.value()),
               percent(c.b.value()), c.lost, c.won, c.p,
               c.lost + c.won == 0 ? "no answer changed sides"
               : c.p < 0.05        ? "a real change"
                                   : "can't tell from noise");
  return Status::ok();
}

Outcome run(Options& o) {
  if (!o.compare.empty()) return print_comparison(o.compare, o.json);
  if (o.eval.model.empty()) o.eval.model = "models/demo";
  if (o.suite != "demo") o.eval.suite = o.suite;
  o.eval.device = o.run.device, o.eval.threads = o.run.threads, o.eval.variants = o.run.variants;
  ProgressLine progress;
  o.eval.progress = [&](int done, int all) { progress.show(done, all, "answers"); };
  LATHE_ASSIGN(o.eval.probes, begin_recording(o.recording));
  LATHE_ASSIGN(const EvalRun result, evaluate(o.eval));
  LATHE_RETURN_IF_ERROR(
      write_recording(o.eval.probes.get(), o.recording,
                      {{"command", "eval"}, {"model", o.eval.model}, {"threads", std::to_string(o.run.threads)}}));
  if (o.json)
    fmt::print("{}\n", eval_json(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print_run(result);
  for (const EvalTask& t : tasks_of(result))
    if (100 * t.accuracy.value() < o.at_least) {
      fmt::print(stderr, "lathe: {}: {} of {} right, less than {} %\n", t.name, t.accuracy.right, t.accuracy.all,
                 o.at_least);
      return Exit::kIncorrect;
    }
  return Status::ok();
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("eval", "Marks a model's answers to held-out questions: what a setting costs in answers");
  sub->group(kMeasure);
  sub->add_option("--model", o->eval.model, "Folder of a checkpoint (default: models/demo)");
  sub->add_option("--suite", o->suite, "demo: the model folder's heldout.jsonl.gz; or a file of that form")
      ->capture_default_str();
  sub->add_option("--task", o->eval.tasks, "Only this task; repeat for several")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_flag("--quick", o->eval.quick, "A small part of every task");
  add_recording_options(*sub, o->recording);
  sub->add_flag("--hard", o->eval.hard, "Also items beyond what the model was trained for");
  sub->add_option("--drafts", o->eval.drafts, "Drafts of the MTP block; 0: plain decode")
      ->check(CLI::Range(0, 8))
      ->capture_default_str();
  sub->add_option("--dtype", o->eval.dtype, "Activations and caches: f32 or bf16 (default: as config.json says)");
  sub->add_option("--slots", o->eval.slots, "Sequences at once")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--index-top-k", o->eval.index_top_k,
                  "Sparse layers attend to so many tokens (default: config.json's index_topk)");
  sub->add_option("--recent", o->eval.recent, "Attend to the last N tokens instead of the indexer's choice");
  sub->add_option("--at-least", o->at_least, "End with exit code 20 if a task has fewer percent right")
      ->check(CLI::Range(0.0, 100.0));
  sub->add_option("--compare", o->compare, "Two reports written with --json: what changed, and whether that is noise")
      ->expected(2);
  add_run_options(*sub, o->run);
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe eval\n  lathe eval --model models/demo-int8 --json > int8.json\n  lathe eval --compare "
      "bf16.json int8.json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
