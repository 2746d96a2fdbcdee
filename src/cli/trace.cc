#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "feedback/child_process.h"
#include "feedback/critical_path.h"
#include "feedback/importer.h"
#include "feedback/trace_summary.h"
#include "feedback/trace_writer.h"

namespace lathe {

namespace {

struct ShowOptions {
  std::string trace, within;
  int rows = 12, instance = 1;
  bool json = false;
};

Outcome show(const ShowOptions& o) {
  LATHE_ASSIGN(Trace trace, import_trace(o.trace));
  if (!o.within.empty()) {
    const auto window = instance_of(trace, o.within, o.instance);
    if (!window) return not_found("--within '{}' --instance {}: the trace has no such span", o.within, o.instance);
    trace = part_of(trace, *window);
  }
  const TraceSummary summary = summarise(trace);
  if (o.json)
    fmt::print("{}\n", to_json(summary).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", to_text(summary, o.rows));
  return Status::ok();
}

struct RecordOptions {
  std::string output;
  std::vector<std::string> command;
};

// A command of lathe, run with --trace.
Outcome record(const RecordOptions& o) {
  std::vector<std::string> command = {own_binary()};
  const bool named =
      o.command.front().ends_with("lathe");  // "-- lathe generate ..." and "-- generate ..." are the same
  command.insert(command.end(), o.command.begin() + named, o.command.end());
  command.insert(command.end(), {"--trace", o.output});
  LATHE_ASSIGN(const ChildOutput child, run_child(command));
  fmt::print("{}", child.stdout_text);
  if (child.exit_code != 0) return static_cast<Exit>(child.exit_code);
  LATHE_ASSIGN(const Trace trace, import_trace(o.output));
  fmt::print(stderr, "lathe: {}: {} spans of {} threads and queues; see lathe trace show {}\n", o.output,
             trace.spans.size(), trace.tracks.size(), o.output);
  return Status::ok();
}

struct ImportOptions {
  std::string trace, output;
};

Outcome import(const ImportOptions& o) {
  LATHE_ASSIGN(const Trace trace, import_trace(o.trace));
  LATHE_RETURN_IF_ERROR(write_chrome(trace, o.output));
  for (const std::string& w : trace.warnings) fmt::print(stderr, "warning: {}\n", w);
  fmt::print("{}: {} spans, {} asynchronous, {} device operations, {} lock intervals, {} samples from a {} trace\n",
             o.output, trace.spans.size(), trace.async_spans.size(), trace.device_ops.size(), trace.locks.size(),
             trace.samples.size(), trace.source);
  return Status::ok();
}

}  // namespace

void add_trace(CLI::App& app, Chosen& chosen) {
  CLI::App* trace = app.add_subcommand("trace", "Record where time goes, look at a trace, bring in another tool's");
  trace->group(kMeasure);
  trace->require_subcommand(1);

  auto r = std::make_shared<RecordOptions>();
  CLI::App* sub = trace->add_subcommand("record", "Run a command of lathe and write where its time went");
  sub->add_option("--output,-o", r->output, "Chrome/Perfetto JSON; compressed if it ends in .gz")
      ->required()
      ->type_name("FILE");
  sub->add_option("command", r->command, "generate, eval or bench model, with its options, after --")->required();
  sub->positionals_at_end();
  sub->footer(
      "Examples:\n  lathe trace record -o run.json -- generate --model models/demo --prompt 'What is 12 + 30?'");
  sub->callback([&chosen, r] { chosen.body = [r] { return record(*r); }; });

  auto s = std::make_shared<ShowOptions>();
  sub = trace->add_subcommand("show", "A screen about a trace: by operator, thread, device and lock");
  sub->add_option("trace", s->trace, "Lathe's or Chrome/PyTorch JSON, Nsight SQLite, perf script; also gzipped")
      ->required()
      ->type_name("FILE");
  sub->add_option("--within", s->within, "Only what begins, or was launched, in a span with this in its name");
  sub->add_option("--instance", s->instance, "Which of those, counted from 1")->check(CLI::Range(1, 1 << 30));
  sub->add_option("--rows", s->rows, "Rows of each list")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  add_json_option(*sub, s->json);
  sub->footer("Examples:\n  lathe trace show run.json\n  lathe trace show profile.sqlite --json");
  sub->callback([&chosen, s] { chosen.body = [s] { return show(*s); }; });

  auto i = std::make_shared<ImportOptions>();
  sub = trace->add_subcommand("import", "Any trace to Chrome/Perfetto JSON");
  sub->add_option("trace", i->trace, "Any format that show reads")->required()->type_name("FILE");
  sub->add_option("--output,-o", i->output, "JSON to write; compressed if it ends in .gz")
      ->required()
      ->type_name("FILE");
  sub->footer("Examples:\n  lathe trace import profile.sqlite -o profile.json.gz");
  sub->callback([&chosen, i] { chosen.body = [i] { return import(*i); }; });

  trace->footer("Examples:\n  lathe trace show run.json\n  lathe trace import profile.sqlite -o profile.json");
}

}  // namespace lathe
