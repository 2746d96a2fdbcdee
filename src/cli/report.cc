#include "feedback/report.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>

#include "cli/command.h"

namespace lathe {

namespace {

struct Options {
  std::vector<std::string> files;
  std::string out = "report.html";
};

Outcome run(const Options& o) {
  LATHE_ASSIGN(const std::string page, report_html(o.files));
  std::ofstream file(o.out, std::ios::binary);
  if (!(file << page).flush()) return invalid("{}: can't write", o.out);
  fmt::print("{}\n", o.out);
  return Status::ok();
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("report", "One HTML page of results and traces: plots, verdicts, numbers");
  sub->group(kMeasure);
  sub->add_option(
         "files", o->files,
         "JSON of compare --out, verify --relations --json, bench ops --json or lab --json; traces, of which two "
         "are explained against each other")
      ->required()
      ->type_name("FILE");
  sub->add_option("-o,--out", o->out, "The page")->type_name("FILE")->capture_default_str();
  sub->footer(
      "The page needs nothing else: no scripts, no network.\n"
      "Examples:\n"
      "  lathe compare --op kda_decode avx2 portable --out compare.json; lathe report compare.json\n"
      "  lathe lab numerics --json > lab.json; lathe report lab.json -o lab.html\n"
      "  lathe report before.json after.json -o why.html");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
