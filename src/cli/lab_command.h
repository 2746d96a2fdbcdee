#pragma once

#include "cli/command.h"

// The case studies of `lathe lab`, one file each.
namespace lathe {

void add_lab_concurrency(CLI::App& lab, Chosen& chosen);
void add_lab_kernel(CLI::App& lab, Chosen& chosen);
void add_lab_numerics(CLI::App& lab, Chosen& chosen);

}  // namespace lathe
