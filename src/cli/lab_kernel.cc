#include "feedback/lab_kernel.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/lab_command.h"
#include "cli/progress.h"

namespace lathe {

namespace {

struct Options {
  KernelLabOptions lab;
  bool json = false;
};

Outcome run(const Options& o) {
  Result<KernelLabReport> report = [&] {
    ProgressLine progress;
    return run_kernel_lab(o.lab, [&](const std::string& what) { progress.show(0, 1, what); });
  }();
  LATHE_ASSIGN(const KernelLabReport r, std::move(report));
  if (o.json)
    fmt::print("{}\n", to_json(r).dump(2));
  else
    fmt::print("{}", to_text(r));
  return Status::ok();
}

}  // namespace

void add_lab_kernel(CLI::App& lab, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = lab.add_subcommand(
      "kernel", "A replay step of KDA is far from its byte roof: what does it compute more than once?");
  sub->add_flag("--mended", o->lab.mended, "The twin without the defect");
  sub->add_option("--blocks", o->lab.blocks, "Blocks of all forms; more are added where they can't tell")
      ->capture_default_str();
  sub->add_option("--seed", o->lab.seed, "Of the data and the order in the blocks")->capture_default_str();
  add_json_option(*sub, o->json);
  sub->footer("Examples:\n  lathe lab kernel\n  lathe lab kernel --mended");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
