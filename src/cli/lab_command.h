#pragma once

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/progress.h"

// The case studies of `lathe lab`, one file each.
namespace lathe {

// Runs a case study with its progress on the terminal, and prints the report as text or JSON.
template <class Report, class LabOptions, class Progress>
Outcome run_lab(Result<Report> (*lab)(const LabOptions&, const Progress&), const LabOptions& options, bool json) {
  Result<Report> report = [&] {
    ProgressLine progress;
    return lab(options, [&](const std::string& what) { progress.show(0, 1, what); });
  }();
  LATHE_ASSIGN(const Report r, std::move(report));
  if (json)
    fmt::print("{}\n", to_json(r).dump(2));
  else
    fmt::print("{}", to_text(r));
  return Status::ok();
}

void add_lab_concurrency(CLI::App& lab, Chosen& chosen);
void add_lab_kernel(CLI::App& lab, Chosen& chosen);
void add_lab_numerics(CLI::App& lab, Chosen& chosen);

}  // namespace lathe
