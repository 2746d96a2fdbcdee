#include "feedback/lab_kernel.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/lab_command.h"

namespace lathe {

namespace {

struct Options {
  KernelLabOptions lab;
  bool json = false;
};

}  // namespace

void add_lab_kernel(CLI::App& lab, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = lab.add_subcommand(
      "kernel", "A replay step of KDA is far from its byte roof: what does it compute more than once?");
  sub->add_flag("--mended", o->lab.mended, "The twin without the defect");
  sub->add_option("--blocks", o->lab.blocks, "Blocks of all forms; more are added where they can't tell")
      ->capture_default_str();
  add_seed_option(*sub, o->lab.seed, "Of the data and the order in the blocks");
  add_json_option(*sub, o->json);
  sub->footer("Examples:\n  lathe lab kernel\n  lathe lab kernel --mended");
  sub->callback([&chosen, o] { chosen.body = [o] { return run_lab(run_kernel_lab, o->lab, o->json); }; });
}

}  // namespace lathe
