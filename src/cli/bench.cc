#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/bench_command.h"
#include "cli/number_table.h"
#include "feedback/build_info.h"
#include "feedback/history.h"
#include "feedback/machine_facts.h"

namespace lathe {

void add_bench_reporting(CLI::App& sub, BenchReporting& reporting) {
  add_json_option(sub, reporting.json);
  sub.add_flag("--record", reporting.record, "Append the rows, with commit and machine, to the history");
  sub.add_option("--history", reporting.history, "File for --record; it must exist")
      ->type_name("FILE")
      ->capture_default_str();
}

Status report_rows(const BenchReporting& reporting, const std::vector<NumberRow>& rows) {
  if (reporting.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const NumberRow& row : rows) all.push_back(to_json(row));
    fmt::print("{}\n", nlohmann::json{{"rows", all},
                                      {"machine", to_json(machine_facts())},
                                      {"commit", build_info().commit},
                                      {"build_id", build_info().build_id}}
                           .dump(2));
  } else {
    for (const NumberRow& row : rows) fmt::print("{}\n", number_line(row));
  }
  return reporting.record ? append_history(reporting.history, rows) : Status::ok();
}

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measured speed: of the machine, of operators, of whole models, of a service");
  bench->group(kMeasure);
  bench->require_subcommand(1);
  add_bench_machine(*bench, chosen);
  add_bench_ops(*bench, chosen);
  add_bench_model(*bench, chosen);
  add_bench_serve(*bench, chosen);
  bench->footer(
      "Examples:\n"
      "  lathe bench machine\n"
      "  lathe bench ops 'kda_*' --record\n"
      "  lathe bench model bench/configs/1b.json --format bf16\n"
      "  lathe bench serve --model models/demo");
}

}  // namespace lathe
