#include "feedback/lab_concurrency.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/lab_command.h"

namespace lathe {

namespace {

struct Options {
  ConcurrencyLabOptions lab;
  bool json = false;
};

}  // namespace

void add_lab_concurrency(CLI::App& lab, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = lab.add_subcommand(
      "concurrency", "Prefill that sends its cache rows is slower than alone: which lock, held by whom, across what?");
  sub->add_flag("--mended", o->lab.mended, "The twin without the defect");
  sub->add_option("--blocks", o->lab.blocks, "Blocks of two runs; more are added where they can't tell")
      ->capture_default_str();
  add_seed_option(*sub, o->lab.seed, "Of the order in the blocks");
  sub->add_option("--trace", o->lab.trace_file, "Keep the recorded run, as Chrome/Perfetto JSON")->type_name("FILE");
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe lab concurrency\n  lathe lab concurrency --mended\n  lathe lab concurrency --trace lab.json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run_lab(run_concurrency_lab, o->lab, o->json); }; });
}

}  // namespace lathe
