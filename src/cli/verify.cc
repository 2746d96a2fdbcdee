#include "feedback/verify.h"

#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/command.h"
#include "cli/progress.h"
#include "feedback/build_info.h"
#include "feedback/candidate_check.h"
#include "feedback/kda_numerics.h"
#include "feedback/relations.h"
#include "ops/registry.h"

namespace lathe {

namespace {

struct VerifyCommand {
  VerifyOptions verify;
  RunOptions run;
  bool json = false;
  std::string candidate;
  bool relations = false;
  RelationOptions paths{.model = "models/demo"};
};

struct VariantSummary {
  int cases = 0;
  NumberRow worst;
};

// One line a variant: its worst case stands for all.
void print_table(const VerifyReport& report) {
  std::vector<VariantSummary> variants;
  for (const NumberRow& row : report.rows) {
    auto same = std::find_if(variants.begin(), variants.end(), [&](const VariantSummary& s) {
      return s.worst.op == row.op && s.worst.variant == row.variant;
    });
    if (same == variants.end()) same = variants.insert(variants.end(), {0, row});
    ++same->cases;
    if (*row.error_of_tolerance >= *same->worst.error_of_tolerance) same->worst = row;
  }
  fmt::print("{:<18} {:<16} {:>5}  {:>12}  {:>12}  {}\n", "operator", "variant", "cases", "worst error", "of tolerance",
             "there");
  for (const VariantSummary& s : variants)
    fmt::print("{:<18} {:<16} {:>5}  {:>12.3g}  {:>12.3g}  {}\n", s.worst.op, s.worst.variant, s.cases,
               *s.worst.error_ratio, *s.worst.error_of_tolerance, s.worst.case_name);
}

void print_json(const VerifyReport& report) {
  nlohmann::json failures = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const Failure& f : report.failures)
    failures.push_back({{"op", f.op},
                        {"variant", f.variant},
                        {"case", f.case_name},
                        {"seed", f.seed},
                        {"relation", f.relation},
                        {"what", f.what}});
  for (const NumberRow& row : report.rows) rows.push_back(to_json(row));
  fmt::print(
      "{}\n",
      nlohmann::json{{"rows", rows}, {"failures", failures}, {"checks", report.checks}, {"plants", report.plants}}.dump(
          2));
}

void print_failures(const VerifyReport& report) {
  for (const Failure& f : report.failures)
    fmt::print("FAIL {} {} {} seed {}: {}: {}\n", f.op, f.variant, f.case_name, f.seed, f.relation, f.what);
}

// A case that accepts wrong results can't judge; a wrong result is worse.
Exit verdict(const VerifyReport& report) {
  if (report.failures.empty()) return Exit::kAsAsked;
  const bool only_plants = std::all_of(report.failures.begin(), report.failures.end(),
                                       [](const Failure& f) { return f.relation == "plants"; });
  return only_plants ? Exit::kInvalid : Exit::kIncorrect;
}

// Errors against context length, as rows and failures like the others.
Status add_kda_numerics(int threads, VerifyReport& report) {
  LATHE_ASSIGN(const std::vector<KdaNumericsRow> rows, [&] {
    ProgressLine progress;
    return kda_numerics({.threads = threads}, [&](const std::string& what, int done, int all) {
      progress.show(done, all, "kda_numerics " + what);
    });
  }());
  for (const KdaNumericsRow& r : rows) {
    const std::string name = fmt::format("{}_tokens{}_segments{}", r.gates, r.tokens, r.segments);
    report.rows.push_back({.op = "kda_numerics",
                           .variant = r.form,
                           .case_name = name,
                           .device = "cpu",
                           .error_ratio = r.worst(),
                           .error_of_tolerance = r.worst() / r.tolerance,
                           .note = r.must_fail ? "must miss the tolerance" : ""});
    ++report.checks;
    if (!r.as_expected())
      report.failures.push_back({"kda_numerics", r.form, name, 1, "oracle",
                                 fmt::format("error {:.3g}, tolerance {:.3g}{}", r.worst(), r.tolerance,
                                             r.must_fail ? "; it must miss it" : "")});
  }
  return Status::ok();
}

Outcome run_relations(VerifyCommand& command) {
  command.paths.threads = command.run.threads;
  LATHE_ASSIGN(const RelationReport report, [&] {
    ProgressLine progress;
    return check_relations(command.paths,
                           [&](const std::string& path, int done, int all) { progress.show(done, all, path); });
  }());
  if (command.json)
    fmt::print("{}\n", to_json(report).dump(2));
  else
    fmt::print("{}", to_text(report));
  return report.failures() == 0 ? Exit::kAsAsked : report.blind ? Exit::kInvalid : Exit::kIncorrect;
}

// As this build's own variants, from outside.
Outcome run_candidate(const VerifyCommand& command, const Choices& choices) {
  LATHE_ASSIGN(const CandidateReport report, [&] {
    ProgressLine progress;
    return verify_candidate(all_ops(),
                            {.build = command.candidate,
                             .ops = command.verify.ops,
                             .choices = &choices,
                             .threads = command.run.threads,
                             .long_cases = command.verify.long_cases,
                             .secret = std::random_device()()},
                            [&](const std::string& what, int done, int all) { progress.show(done, all, what); });
  }());
  VerifyReport shown;
  shown.rows = report.rows, shown.checks = static_cast<int64_t>(report.rows.size() + report.troubles.size());
  bool only_refused = true;
  for (const CandidateTrouble& t : report.troubles) {
    shown.failures.push_back({t.op, t.variant, t.case_name, 0, verdict_name(t.verdict), t.why});
    only_refused &= t.verdict == Verdict::kRefused;
  }
  if (command.json) {
    print_json(shown);
  } else {
    print_table(shown);
    print_failures(shown);
    for (const std::string& what : report.left_out) fmt::print("left out: {}\n", what);
    fmt::print("build {}: {} checks against build {}, {} failed\n", report.build_id, shown.checks,
               build_info().build_id, shown.failures.size());
  }
  return report.troubles.empty() ? Exit::kAsAsked : only_refused ? Exit::kRefused : Exit::kIncorrect;
}

Outcome run_verify(VerifyCommand& command) {
  if (command.relations) return run_relations(command);
  Choices choices;
  LATHE_RETURN_IF_ERROR(add_choices(command.run.variants, choices));
  if (!command.candidate.empty()) return run_candidate(command, choices);
  command.verify.device = command.run.device;
  command.verify.threads = command.run.threads;
  command.verify.choices = &choices;
  Result<VerifyReport> report = [&] {
    ProgressLine progress;
    return verify(all_ops(), command.verify, [&](const std::string& op, const std::string& name, int done, int all) {
      progress.show(done, all, op + " " + name);
    });
  }();
  if (!report.is_ok()) return report.status();
  if (command.verify.long_cases && command.run.device == "cpu" &&
      fnmatch(command.verify.ops.c_str(), "kda_numerics", 0) == 0)
    LATHE_RETURN_IF_ERROR(add_kda_numerics(command.run.threads, *report));
  if (command.json) {
    print_json(*report);
  } else {
    print_table(*report);
    print_failures(*report);
    fmt::print("{} checks, {} plants rejected, {} failed\n", report->checks, report->plants, report->failures.size());
  }
  return verdict(*report);
}

}  // namespace

void add_verify(CLI::App& app, Chosen& chosen) {
  auto command = std::make_shared<VerifyCommand>();
  CLI::App* sub = app.add_subcommand(
      "verify", "Every variant of every operator against its oracle, and the relations that hold for all");
  sub->group(kMeasure);
  sub->add_option("operators", command->verify.ops, "Operators by name or glob, such as 'kda_*'")
      ->type_name("OP-GLOB")
      ->capture_default_str();
  sub->add_flag("--long", command->verify.long_cases,
                "Also cases of real size, and errors against context length (minutes)");
  sub->add_option("--seeds", command->verify.seeds, "Seeds of each small case")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--candidate", command->candidate,
                  "Another build, judged from outside: a lathe binary, or a folder that holds one")
      ->type_name("BUILD");
  sub->add_flag("--relations", command->relations,
                "Instead: every path of a model against the plain one, and where a failure begins");
  sub->add_option("--model", command->paths.model, "Its folder")->type_name("DIR")->capture_default_str();
  sub->add_option("--tokens", command->paths.tokens, "Length of the prompt")->capture_default_str();
  sub->add_option("--paths", command->paths.paths, "Paths by name or glob")->type_name("GLOB")->capture_default_str();
  add_seed_option(*sub, command->paths.seed, "Of the prompt's tokens");
  add_run_options(*sub, command->run);
  add_json_option(*sub, command->json);
  sub->footer(
      "Exit codes: 0 all right, 20 a variant or path is wrong, 30 a case can't tell right from wrong, 31 a candidate "
      "was refused.\n"
      "Examples:\n"
      "  lathe verify\n"
      "  lathe verify 'kda_*' --long\n"
      "  lathe verify linear --variant linear=avx512\n"
      "  lathe verify 'kda_*' --candidate ../other/build/release\n"
      "  lathe verify --relations --model models/demo --paths 'chunks*'\n"
      "  lathe verify --device sim --json");
  sub->callback([&chosen, command] { chosen.body = [command] { return run_verify(*command); }; });
}

}  // namespace lathe
