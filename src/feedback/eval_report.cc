#include "feedback/eval_report.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

constexpr double kZ = 1.959963984540054;  // 95 %

double wilson(const Proportion& p, double side) {
  if (p.all == 0) return side < 0 ? 0 : 1;
  const double n = p.all, x = p.value(), z2 = kZ * kZ;
  const double centre = (x + z2 / (2 * n)) / (1 + z2 / n),
               half = kZ / (1 + z2 / n) * std::sqrt(x * (1 - x) / n + z2 / (4 * n * n));
  return std::min(1.0, std::max(0.0, centre + side * half));
}

std::string group_of(const EvalMarked& a) { return a.context ? fmt::format("{}@{}", a.task, a.context) : a.task; }

// Two-sided exact sign test: as many or more of `all` fair coins on one side.
double sign_test(int lost, int won) {
  const int all = lost + won, extreme = std::max(lost, won);
  if (all == 0) return 1;
  double tail = 0;
  for (int k = extreme; k <= all; ++k)
    tail += std::exp(std::lgamma(all + 1) - std::lgamma(k + 1) - std::lgamma(all - k + 1) - all * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

}  // namespace

double Proportion::low() const { return wilson(*this, -1); }
double Proportion::high() const { return wilson(*this, 1); }

std::vector<EvalTask> tasks_of(const EvalRun& run) {
  std::vector<EvalTask> tasks;
  std::map<std::string, size_t> place;
  std::vector<std::pair<int64_t, int64_t>> accepted;  // tokens, steps
  for (const EvalMarked& a : run.answers) {
    const auto [it, fresh] = place.try_emplace(group_of(a), tasks.size());
    if (fresh) tasks.push_back({.name = it->first, .accuracy = {}}), accepted.emplace_back();
    EvalTask& task = tasks[it->second];
    ++task.accuracy.all;
    task.accuracy.right += a.right;
    accepted[it->second].first += a.accepted, accepted[it->second].second += a.verification_steps;
  }
  for (size_t i = 0; i < tasks.size(); ++i)
    if (accepted[i].second)
      tasks[i].acceptance_length = static_cast<double>(accepted[i].first) / static_cast<double>(accepted[i].second);
  return tasks;
}

Json eval_json(const EvalRun& run) {
  Json j = {{"model", run.model},     {"build", run.build},     {"setting", run.setting},
            {"seconds", run.seconds}, {"tasks", Json::array()}, {"answers", Json::array()}};
  int64_t tokens = 0;
  for (const EvalMarked& a : run.answers) {
    tokens += a.tokens;
    j["answers"].push_back({{"id", a.id},
                            {"task", a.task},
                            {"right", a.right},
                            {"wanted", a.wanted},
                            {"got", a.got},
                            {"tokens", a.tokens},
                            {"verification_steps", a.verification_steps},
                            {"accepted", a.accepted},
                            {"context", a.context}});
  }
  for (const EvalTask& t : tasks_of(run))
    j["tasks"].push_back({{"task", t.name},
                          {"right", t.accuracy.right},
                          {"all", t.accuracy.all},
                          {"accuracy", t.accuracy.value()},
                          {"low", t.accuracy.low()},
                          {"high", t.accuracy.high()},
                          {"acceptance_length", t.acceptance_length}});
  j["tokens_per_s"] = run.seconds > 0 ? static_cast<double>(tokens) / run.seconds : 0;
  return j;
}

Result<EvalRun> read_eval_run(const std::string& path) {
  LATHE_ASSIGN(const Json j, read_json_file(path, int64_t{256} << 20));
  if (!j.is_object() || !j.contains("answers") || !j["answers"].is_array())
    return corrupt("{}: answers: not a report of lathe eval --json", path);
  EvalRun run{.model = j.value("model", ""),
              .build = j.value("build", ""),
              .setting = j.value("setting", ""),
              .seconds = 0,
              .answers = {}};
  for (const Json& a : j["answers"]) {
    JsonReader r(a, path, fmt::format("answers[{}]", run.answers.size()));
    EvalMarked m{.id = r.text("id", ""), .task = r.text("task", ""), .right = r.boolean("right", false)};
    m.context = static_cast<int>(r.integer("context", 0, 0, INT32_MAX));
    LATHE_RETURN_IF_ERROR(r.status());
    run.answers.push_back(std::move(m));
  }
  return run;
}

Result<std::vector<EvalChange>> compare_eval_runs(const EvalRun& a, const EvalRun& b) {
  std::map<std::string, const EvalMarked*> in_b;
  for (const EvalMarked& m : b.answers) in_b[m.id] = &m;
  std::vector<EvalChange> changes;
  std::map<std::string, size_t> place;
  int shared = 0;
  for (const EvalMarked& m : a.answers) {
    const auto other = in_b.find(m.id);
    if (other == in_b.end()) continue;
    ++shared;
    const auto [it, fresh] = place.try_emplace(group_of(m), changes.size());
    if (fresh) changes.push_back({.task = it->first, .a = {}, .b = {}});
    EvalChange& c = changes[it->second];
    ++c.a.all, ++c.b.all;
    c.a.right += m.right, c.b.right += other->second->right;
    c.lost += m.right && !other->second->right, c.won += !m.right && other->second->right;
  }
  if (shared == 0) return invalid("the two reports have no answer in common");
  for (EvalChange& c : changes) c.p = sign_test(c.lost, c.won);
  return changes;
}

}  // namespace lathe
