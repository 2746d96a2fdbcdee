#include "feedback/overlap.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "feedback/importer.h"

namespace lathe {

namespace {

struct Options {
  std::string trace;
  OverlapOptions overlap;
  bool json = false;
};

Outcome run(const Options& o) {
  LATHE_ASSIGN(const Trace trace, import_trace(o.trace));
  LATHE_ASSIGN(const OverlapReport report, find_overlap(trace, o.overlap));
  if (o.json)
    fmt::print("{}\n", to_json(report, trace).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", to_text(report));
  return Status::ok();
}

}  // namespace

void add_overlap(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "overlap", "What of a trace ran at the same time, never did though it could, was idle, or was waited for");
  sub->group(kMeasure);
  sub->add_option("trace", o->trace, "Lathe's or Chrome/PyTorch JSON, Nsight SQLite, perf script; also gzipped")
      ->required()
      ->type_name("FILE");
  sub->add_option("--a", o->overlap.a, "First set: spans and kernels with this in their name");
  sub->add_option("--b", o->overlap.b, "Second set");
  sub->add_option("--within", o->overlap.within, "Only inside a span with this in its name, such as ProfilerStep#3");
  sub->add_option("--instance", o->overlap.instance,
                  "Which of those, counted from 1 (a span around another of its name "
                  "isn't counted)")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe overlap run.json\n  lathe overlap profile.pt.trace.json.gz --a nccl --b gemm\n"
      "  lathe overlap run.json --within step --instance 12 --json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
