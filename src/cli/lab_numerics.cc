#include "feedback/lab_numerics.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/lab_command.h"

namespace lathe {

namespace {

struct Options {
  NumericsLabOptions lab;
  bool json = false;
};

}  // namespace

void add_lab_numerics(CLI::App& lab, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = lab.add_subcommand(
      "numerics", "A prompt cut into segments ends in another state than the whole: which product, in which format?");
  sub->add_flag("--mended", o->lab.mended, "The twin without the defect");
  sub->add_option("--tokens", o->lab.tokens, "Context lengths, ascending; multiples of 16 times the segments")
      ->delimiter(',')
      ->capture_default_str();
  sub->add_option("--segments", o->lab.segments, "Segments that a prompt is cut into")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  add_seed_option(*sub, o->lab.seed, "Of the tokens");
  add_threads_option(*sub, o->lab.threads);
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe lab numerics\n  lathe lab numerics --mended\n  lathe lab numerics --tokens 1024,4096,16384");
  sub->callback([&chosen, o] { chosen.body = [o] { return run_lab(run_numerics_lab, o->lab, o->json); }; });
}

}  // namespace lathe
