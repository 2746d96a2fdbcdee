#include <fmt/ranges.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json_reader.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/verdict_exit.h"
#include "feedback/build_info.h"
#include "feedback/child_process.h"
#include "feedback/compare_arms.h"
#include "feedback/comparison.h"
#include "feedback/ledger.h"
#include "feedback/machine_facts.h"
#include "feedback/model_source.h"
#include "feedback/op_source.h"
#include "ops/registry.h"

namespace lathe {

namespace {

constexpr int64_t kMostRecordBytes = int64_t{1} << 28;

struct Options {
  std::string a, b, op, cases = "*", model, out, replay;
  std::string ledger, hypothesis, author = "lathe compare";
  bool builds = false, json = false;
  std::vector<std::string> set;
  int threads = 1;
  double seconds = 40, smallest_percent = 1;
  uint64_t seed = 0;
};

// What a comparison is about, beside the numbers.
struct Question {
  CompareArm a, b;
  std::vector<std::string> factors;
  std::string place;  // operator or model
};

std::string shown_percent(double log_ratio, double beside) {
  const double p = percent(log_ratio), width = std::fabs(percent(beside));
  return fmt::format("{:+.{}f} %", p, width > 20 ? 0 : width > 1 ? 1 : 2);  // rounding follows the interval's width
}

std::string shown(const Effect& e) {
  const double width = std::isfinite(e.interval.high - e.interval.low) ? e.interval.high - e.interval.low : 1;
  if (!std::isfinite(width) || !std::isfinite(e.interval.low)) return shown_percent(e.estimate, width);
  return fmt::format("{} ({} .. {})", shown_percent(e.estimate, width), shown_percent(e.interval.low, width),
                     shown_percent(e.interval.high, width));
}

// Where the effect stands: what was exchanged, and the case that moved most.
std::string address(const Question& q, const Comparison& c) {
  if (q.factors.empty()) return fmt::format("{}: A and B are the same build with the same settings", q.place);
  std::string text = fmt::format("{}: {}", q.place, fmt::join(q.factors, "; "));
  const bool moved =
      c.verdict == Verdict::kImproved || c.verdict == Verdict::kRegressed || c.verdict == Verdict::kMixed;
  if (!moved || c.strata.empty()) return text;
  const StratumResult& most = *std::max_element(c.strata.begin(), c.strata.end(), [](const auto& x, const auto& y) {
    return std::fabs(x.effect.estimate) < std::fabs(y.effect.estimate);
  });
  text += fmt::format("; most in {}", most.name);
  return text +
         (q.factors.size() == 1 ? "  [A4: only this was exchanged]" : "  [A2: several things differ; exchange one]");
}

void print_people(const Question& q, const Comparison& c, const ComparisonPlan& plan) {
  const bool timed = c.look > 0 && c.verdict != Verdict::kIncorrect && c.verdict != Verdict::kRefused;
  fmt::print("{}{}\n", verdict_words(c.verdict),
             !timed ? ""
                    : fmt::format(": B {}, look {} of {}, {} blocks, detectable {}", shown(c.effect), c.look,
                                  plan.looks.size(), c.blocks,
                                  shown_percent(c.noise.detectable, c.noise.detectable).substr(1)));
  for (const std::string& reason : c.reasons) fmt::print("  {}\n", reason);
  if (timed) {
    fmt::print("  {:<34} {:>12} {:>12}   {:<28} {}\n", "case", "A", "B", "B against A", "");
    for (const StratumResult& s : c.strata)
      fmt::print("  {:<34} {:>9.1f} us {:>9.1f} us   {:<28} {}\n", s.name, s.median_a, s.median_b, shown(s.effect),
                 verdict_words(s.verdict));
    fmt::print("  A against itself, {} blocks: deviation {}, drift {}, second place {}\n", c.noise.blocks,
               shown_percent(c.noise.deviation, c.noise.deviation).substr(1),
               shown_percent(c.noise.drift, c.noise.deviation), shown_percent(c.noise.order, c.noise.deviation));
  }
  fmt::print("  address: {}\n", address(q, c));
}

nlohmann::json arm_json(const CompareArm& arm) {
  return {{"text", arm.text}, {"build_id", arm.build_id}, {"variant", arm.variant}, {"settings", arm.settings}};
}

Outcome report(const Options& o, const Question& q, const Comparison& c, const ComparisonPlan& plan,
               const std::vector<std::string>& strata) {
  nlohmann::json j = to_json(c, plan, strata);
  j["kind"] = "comparison";
  j["schema"] = 1;
  j["place"] = q.place;
  j["a"] = arm_json(q.a), j["b"] = arm_json(q.b);
  j["factors"] = q.factors;
  j["address"] = address(q, c);
  j["machine"] = to_json(machine_facts());
  j["trusted_build"] = build_info().build_id;
  if (!o.out.empty()) {
    std::ofstream file(o.out);
    if (!(file << j.dump(1) << '\n').flush()) return invalid("{}: can't write", o.out);
  }
  if (o.json)
    fmt::print("{}\n", j.dump(2));
  else
    print_people(q, c, plan);
  return exit_of(c.verdict);
}

Outcome replay(const Options& o) {
  LATHE_ASSIGN(const nlohmann::json j, read_json_file(o.replay, kMostRecordBytes));
  Result<ComparisonRecord> record = comparison_record(j);
  if (!record.is_ok()) return record.status().within(o.replay);
  Question q;
  try {
    q.place = j.at("place"), q.factors = j.at("factors").get<std::vector<std::string>>();
    for (auto [arm, name] : {std::pair{&q.a, "a"}, {&q.b, "b"}}) {
      const nlohmann::json& from = j.at(name);
      *arm = {.text = from.at("text"),
              .binary = {},
              .build_id = from.at("build_id"),
              .variant = from.at("variant"),
              .settings = from.at("settings").get<std::map<std::string, std::string>>()};
    }
  } catch (const nlohmann::json::exception& e) {
    return corrupt("{}: {}", o.replay, e.what());
  }
  RecordedSource source(record->strata, record->lives);
  LATHE_ASSIGN(const Comparison c, compare(source, record->plan));
  return report(o, q, c, record->plan, record->strata);
}

Result<Question> question(const Options& o) {
  Question q;
  for (auto [arm, text] : {std::pair{&q.a, o.a}, {&q.b, o.b}}) {
    if (o.builds && text.find('/') == std::string::npos) text = "./" + text;
    for (const std::string& setting : o.set) text += "," + setting;
    LATHE_ASSIGN(*arm, compare_arm(text, own_binary()));
  }
  q.factors = factors(q.a, q.b);
  q.place = o.op.empty() ? "model " + o.model : o.op;
  return q;
}

Result<int> threads_of(const CompareArm& arm, int otherwise) {
  const auto it = arm.settings.find("threads");
  if (it == arm.settings.end()) return otherwise;
  int threads = 0;
  const auto [end, error] = std::from_chars(it->second.data(), it->second.data() + it->second.size(), threads);
  if (error != std::errc() || *end != 0 || threads < 1 || threads > 1024)
    return invalid("'{}': threads={} isn't a number from 1 to 1024", arm.text, it->second);
  return threads;
}

Result<std::unique_ptr<OpSource>> op_source(const Options& o, const Question& q, const ComparisonPlan& plan) {
  const auto ops = all_ops();
  const auto op = std::find_if(ops.begin(), ops.end(), [&](const AnyOp& x) { return o.op == x.name; });
  if (op == ops.end()) {
    std::vector<std::string> names;
    for (const AnyOp& x : ops) names.push_back(x.name);
    return invalid("--op {}: no such operator; there are {}", o.op, fmt::join(names, ", "));
  }
  std::vector<int> cases, otherwise;  // small ones are for variants that can't do a large one in the time
  for (int i = 0; i < static_cast<int>(op->cases.size()); ++i)
    if (fnmatch(o.cases.c_str(), op->cases[i].name.c_str(), 0) == 0)
      (op->cases[i].bench || o.cases != "*" ? cases : otherwise).push_back(i);
  if (cases.empty() && otherwise.empty()) return invalid("--cases {}: {} has no such case", o.cases, o.op);
  OpArm arms[2];
  for (int i = 0; i < 2; ++i) {
    const CompareArm& from = i == 0 ? q.a : q.b;
    const auto& known = op->variants;
    if (from.binary == own_binary() && !from.variant.empty() &&
        std::find(known.begin(), known.end(), from.variant) == known.end())
      return invalid("'{}': {} has no variant '{}'; there are {}", from.text, o.op, from.variant,
                     fmt::join(known, ", "));
    for (const auto& [key, value] : from.settings)
      if (key != "threads") return invalid("'{}': an operator has no setting '{}'; there is threads", from.text, key);
    arms[i] = {.command = {from.binary, "op-server"}, .build_id = from.build_id, .variant = from.variant};
    LATHE_ASSIGN(arms[i].threads, threads_of(from, o.threads));
  }
  const int most_lives = 2 * (plan.calibration_blocks + plan.looks.back().blocks);
  return OpSource::create(*op, cases, otherwise, arms[0], arms[1], o.seconds / most_lives, plan.seed ^ 0x5eed);
}

// The experiment is sealed before its first run.
Result<std::string> seal(const Options& o, const Question& q, const ComparisonPlan& plan, Ledger& ledger) {
  nlohmann::json body = {{"question", fmt::format("{}: {} against {}", q.place, o.b, o.a)},
                         {"plan", sealed_json(plan)},
                         {"plan_digest", plan_digest(plan)},
                         {"arms", {arm_json(q.a), arm_json(q.b)}}};
  if (!o.hypothesis.empty()) body["hypothesis"] = o.hypothesis;
  return ledger.append("experiment", body, o.author);
}

Status tell(const Options& o, const Question& q, const Comparison& c, const ComparisonPlan& plan,
            const std::vector<std::string>& strata, const std::string& experiment, Ledger& ledger) {
  nlohmann::json samples = to_json(c, plan, strata);
  LATHE_ASSIGN(
      const std::string evidence,
      ledger.append("evidence",
                    {{"type", "samples"},
                     {"experiment", experiment},
                     {"reproduce", fmt::format("lathe compare {} {} {} --seed {}", o.a, o.b,
                                               o.op.empty() ? "--model " + o.model : "--op " + o.op, plan.seed)},
                     {"locality", address(q, c)},
                     {"run", samples}},
                    o.author));
  samples.erase("lives");
  samples["value"] = verdict_name(c.verdict);
  samples["experiment"] = experiment, samples["evidence"] = {evidence};
  samples["address"] = address(q, c);
  LATHE_ASSIGN(const std::string verdict, ledger.append("verdict", samples, o.author));
  fmt::print(stderr, "lathe: {}: {} of {}, on {}\n", o.ledger, verdict, experiment, evidence);
  return Status::ok();
}

Outcome run_comparison(const Options& o, const Question& q, MeasurementSource& source, const ComparisonPlan& plan) {
  if (!o.json) fmt::print(stderr, "lathe: plan {} is sealed\n", plan_digest(plan).substr(0, 16));
  std::unique_ptr<Ledger> ledger;
  std::string experiment;
  if (!o.ledger.empty()) {
    LATHE_ASSIGN(ledger, Ledger::open(o.ledger, Ledger::Mode::kWrite));
    LATHE_ASSIGN(experiment, seal(o, q, plan, *ledger));
  }
  const Result<Comparison> c = [&] {
    ProgressLine progress;
    return compare(source, plan, [&](int done, int most, const std::string& what) { progress.show(done, most, what); });
  }();
  if (!c.is_ok()) return c.status();
  if (ledger) LATHE_RETURN_IF_ERROR(tell(o, q, *c, plan, source.strata(), experiment, *ledger));
  return report(o, q, *c, plan, source.strata());
}

Outcome run(const Options& o) {
  if (!o.replay.empty()) return replay(o);
  if (o.a.empty() || o.b.empty()) return invalid("compare needs two arms, A and B, such as avx2 portable");
  if (o.op.empty() == o.model.empty())
    return invalid("compare needs either --op OPERATOR or --model DIR: what shall A and B run?");
  LATHE_ASSIGN(const Question q, question(o));
  ComparisonPlan plan;
  plan.smallest_effect = o.smallest_percent / 100;
  plan.seed = o.seed ? o.seed : (uint64_t{std::random_device()()} << 32 | std::random_device()());
  if (!o.model.empty()) {
    LATHE_ASSIGN(const std::unique_ptr<ModelSource> source, ModelSource::create(o.model, q.a, q.b, o.threads));
    return run_comparison(o, q, *source, plan);
  }
  LATHE_ASSIGN(const std::unique_ptr<OpSource> source, op_source(o, q, plan));
  for (const std::string& left_out : source->left_out()) fmt::print(stderr, "lathe: left out: {}\n", left_out);
  if (source->trouble()) {
    Comparison c{.verdict = source->trouble()->verdict};
    c.reasons = {source->trouble()->why};
    return report(o, q, c, plan, source->strata());
  }
  return run_comparison(o, q, *source, plan);
}

}  // namespace

void add_compare(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("compare", "Is B better than A? Two builds, variants or settings, in randomised blocks");
  sub->group(kMeasure);
  sub->add_option("A", o->a, "What is: words with commas, a variant, a build's path, key=value; or default");
  sub->add_option("B", o->b, "What it is compared with; the same as A: the noise of this machine");
  sub->add_option("--op", o->op, "Operator that both run")->type_name("OPERATOR");
  sub->add_option("--cases", o->cases, "Its cases by name or glob (default: those of real size)")->type_name("GLOB");
  sub->add_option("--model", o->model, "Or a model that both run: time to first token and per token")->type_name("DIR");
  sub->add_flag("--build", o->builds, "A and B are builds: binaries, or folders that hold one");
  sub->add_option("--set", o->set, "Setting of both arms. Repeatable")->type_name("KEY=VALUE")->expected(1)->take_all();
  sub->add_option("--smallest", o->smallest_percent,
                  "Smallest difference worth having, in percent: inside it, arms are equal")
      ->check(CLI::Range(0.0, 50.0))
      ->capture_default_str();
  sub->add_option("--seconds", o->seconds, "Time for all lives: decides which cases are measured, and how long")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  sub->add_option("--seed", o->seed, "Draws the order of the arms (default: unpredictable)");
  sub->add_option("--out", o->out, "Also write the whole run as JSON: for `lathe report`, --replay and the ledger")
      ->type_name("FILE");
  sub->add_option("--ledger", o->ledger, "Seal the experiment there before it runs; evidence and verdict after")
      ->type_name("FILE");
  sub->add_option("--hypothesis", o->hypothesis, "Id of the hypothesis in the ledger that this tests")->type_name("ID");
  sub->add_option("--replay", o->replay, "Decide a recorded run again")->type_name("FILE");
  add_threads_option(*sub, o->threads);
  o->threads = 1;
  add_json_option(*sub, o->json);
  sub->footer(
      "Every life is a fresh process; the candidate holds neither clock nor reference nor verdict. Decisions fall at "
      "8, 12,\n"
      "16 or 24 blocks and nowhere else.\n"
      "Exit codes: 0 better or equal, 10 worse, 11 mixed, 12 can't tell, 20 incorrect, 30 invalid, 31 refused.\n"
      "Examples:\n"
      "  lathe compare --op kda_decode avx2 portable\n"
      "  lathe compare --op linear --build build/release ../other/build/release\n"
      "  lathe compare --op moe default,threads=1 default,threads=2\n"
      "  lathe compare --model models/demo default kda_decode=portable");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
