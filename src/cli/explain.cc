#include "feedback/explain.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "feedback/importer.h"

namespace lathe {

namespace {

struct Options {
  std::string a, b;
  ExplainOptions explain;
  int rows = 40;
  bool json = false;
};

// "one.json,two.json": several lives of one arm.
Result<std::vector<Trace>> read_arm(const std::string& names) {
  std::vector<Trace> traces;
  for (size_t at = 0; at < names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    LATHE_ASSIGN(Trace trace, import_trace(names.substr(at, comma - at)));
    traces.push_back(std::move(trace));
    at = comma + 1;
  }
  return traces;
}

Outcome run(const Options& o) {
  LATHE_ASSIGN(const std::vector<Trace> a, read_arm(o.a));
  LATHE_ASSIGN(const std::vector<Trace> b, read_arm(o.b));
  if (a.empty()) return invalid("no trace given");
  for (const auto* arm : {&a, &b})
    for (const Trace& t : *arm) {
      if (t.lost_events > 0)
        fmt::print(stderr, "warning: {} events were lost: times are lower bounds\n", t.lost_events);
      for (const std::string& w : t.warnings) fmt::print(stderr, "warning: {}\n", w);
    }
  LATHE_ASSIGN(const Explanation e, explain(a, b, o.explain));
  if (o.json)
    fmt::print("{}\n", to_json(e).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", to_text(e, o.rows));
  return Status::ok();
}

}  // namespace

void add_explain(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "explain",
      "Why two recorded runs differ: contributions with addresses that add up; or where one run's time goes");
  sub->group(kMeasure);
  sub->add_option("run_a", o->a, "Trace; several lives of one build separated by commas")->required()->type_name("A");
  sub->add_option("run_b", o->b, "Trace to explain against A (default: only A, against its roof where it has one)")
      ->type_name("B");
  sub->add_option("--within", o->explain.within, "Units of work are the spans with this in their name");
  sub->add_option("--rows", o->rows, "Rows of each tree")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--floor", o->explain.life_floor,
                  "Share of a part's time below which one life an arm says nothing; three lives an arm need no floor")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe explain before.json after.json\n  lathe explain run.json\n"
      "  lathe explain a1.json,a2.json,a3.json b1.json,b2.json,b3.json --json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
