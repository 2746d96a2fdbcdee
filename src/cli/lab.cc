#include <CLI/CLI.hpp>

#include "cli/lab_command.h"

namespace lathe {

void add_lab(CLI::App& app, Chosen& chosen) {
  CLI::App* lab = app.add_subcommand("lab", "Case studies: a defect, and how the instruments find its cause");
  lab->group(kMeasure);
  lab->require_subcommand(1);
  add_lab_concurrency(*lab, chosen);
  add_lab_kernel(*lab, chosen);
  add_lab_numerics(*lab, chosen);
  lab->footer("Examples:\n  lathe lab concurrency\n  lathe lab numerics --mended");
}

}  // namespace lathe
