#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "feedback/number_row.h"

// What the four benches of `lathe bench` share.
namespace lathe {

struct BenchReporting {
  bool json = false, record = false;
  std::string history = "bench/history.jsonl";
};
void add_bench_reporting(CLI::App& sub, BenchReporting& reporting);

// Prints the rows, and appends them to the history where that is asked.
Status report_rows(const BenchReporting& reporting, const std::vector<NumberRow>& rows);

void add_bench_machine(CLI::App& bench, Chosen& chosen);
void add_bench_ops(CLI::App& bench, Chosen& chosen);
void add_bench_model(CLI::App& bench, Chosen& chosen);
void add_bench_serve(CLI::App& bench, Chosen& chosen);

}  // namespace lathe
