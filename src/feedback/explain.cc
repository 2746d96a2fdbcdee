#include "feedback/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "feedback/unit_partition.h"

namespace lathe {

namespace {

constexpr int kBlocks = 4;               // a run's units, in order of time, for the spread within it
constexpr double kSpreads = 3;           // standard errors
constexpr double kSmallestShare = 0.01;  // of a unit: smaller changes aren't told
constexpr size_t kUnitsForQuartiles = 8;

// The units of one phase of one arm, over all its lives.
struct Arm {
  std::vector<std::vector<Unit>> lives;
  double mean_ns = 0, sum_ns = 0, spread_ns = 0;  // spread: standard error of the mean
  int64_t units = 0;
  struct Part {
    double ns = 0, calls = 0, spread_ns = 0;
  };
  std::map<std::vector<std::string>, Part> parts;
};

// Those whose length lies between the quartiles: a hiccup of the machine is in few of them, and means over the same
// units still add up.
std::vector<const Unit*> typical(const std::vector<Unit>& units) {
  std::vector<const Unit*> all;
  for (const Unit& u : units) all.push_back(&u);
  if (all.size() < kUnitsForQuartiles) return all;
  std::vector<int64_t> lengths;
  for (const Unit& u : units) lengths.push_back(u.window.length());
  std::sort(lengths.begin(), lengths.end());
  const int64_t low = lengths[lengths.size() / 4], high = lengths[lengths.size() * 3 / 4];
  std::erase_if(all, [&](const Unit* u) { return u->window.length() < low || u->window.length() > high; });
  return all;
}

// Standard error of a mean from groups that are independent as far as they can be: lives, else stretches of one life.
double standard_error(const std::vector<double>& groups) {
  if (groups.size() < 2) return 0;
  double mean = 0, square = 0;
  for (double g : groups) mean += g / static_cast<double>(groups.size());
  for (double g : groups) square += (g - mean) * (g - mean);
  return std::sqrt(square / static_cast<double>(groups.size() - 1) / static_cast<double>(groups.size()));
}

double part_mean(const std::vector<const Unit*>& units, const std::vector<std::string>* path) {
  double sum = 0;
  for (const Unit* u : units) {
    if (!path) {
      sum += static_cast<double>(u->window.length());
    } else if (const auto part = u->parts.find(*path); part != u->parts.end()) {
      sum += static_cast<double>(part->second.ns);
    }
  }
  return units.empty() ? 0 : sum / static_cast<double>(units.size());
}

void summarise(Arm& arm) {
  std::vector<std::vector<const Unit*>> groups;
  std::set<std::vector<std::string>> paths;
  size_t lives = 0;
  for (const auto& life : arm.lives) lives += !life.empty();
  for (const auto& life : arm.lives) {
    const std::vector<const Unit*> chosen = typical(life);
    for (const Unit& u : life) arm.sum_ns += static_cast<double>(u.window.length()), ++arm.units;
    if (chosen.empty()) continue;
    if (lives > 1) {
      groups.push_back(chosen);
    } else {
      const size_t blocks = std::min<size_t>(kBlocks, chosen.size());
      for (size_t b = 0; b < blocks; ++b)
        groups.emplace_back(chosen.begin() + static_cast<int64_t>(chosen.size() * b / blocks),
                            chosen.begin() + static_cast<int64_t>(chosen.size() * (b + 1) / blocks));
    }
    for (const Unit* u : chosen) {
      arm.mean_ns += static_cast<double>(u->window.length()) / static_cast<double>(chosen.size() * lives);
      for (const auto& [path, part] : u->parts) {
        Arm::Part& mean = arm.parts[path];
        mean.ns += static_cast<double>(part.ns) / static_cast<double>(chosen.size() * lives);
        mean.calls += static_cast<double>(part.calls) / static_cast<double>(chosen.size() * lives);
        paths.insert(path);
      }
    }
  }
  const auto spread = [&](const std::vector<std::string>* path) {
    std::vector<double> means;
    for (const auto& group : groups) means.push_back(part_mean(group, path));
    return standard_error(means);
  };
  arm.spread_ns = spread(nullptr);
  for (const auto& path : paths) arm.parts[path].spread_ns = spread(&path);
}

std::string joined(const std::vector<std::string>& path) {
  std::string text;
  for (size_t i = 1; i < path.size(); ++i) text += (i > 1 ? " > " : "") + path[i];
  return text;
}

std::string signed_duration(double ns) {
  return (ns < 0 ? "-" : "+") + duration_text(static_cast<int64_t>(std::abs(ns)));
}

std::string percent_of(double part, double whole) {
  return whole == 0 ? std::string("-") : fmt::format("{:+.1f} %", 100 * part / whole);
}

std::string fact(const Trace& t, const std::string& name) {
  const auto found = t.facts.find("otherData." + name);
  return found == t.facts.end() ? "" : found->second;
}

void compare_settings(const Trace& a, const Trace& b, Explanation& e) {
  std::set<std::string> names = {"build_id", "commit", "injected", "level"};
  for (const Trace* t : {&a, &b})
    for (const auto& [key, value] : t->facts)
      if (key.starts_with("otherData.setting.") && key.find("roof.") == std::string::npos) names.insert(key.substr(10));
  for (const std::string& name : names) {
    const std::string x = fact(a, name), y = fact(b, name);
    if (x != y)
      e.settings.push_back(fmt::format("{}: {} -> {}", name, x.empty() ? "(none)" : x, y.empty() ? "(none)" : y));
  }
}

// What is called more or less often; by operator, since that is what people change.
void compare_counts(const PhaseExplanation& p, Explanation& e) {
  struct Calls {
    double a = 0, b = 0;
  };
  std::map<std::string, Calls> calls;
  for (const Contribution& c : p.rows) {
    if (c.path.back() == kUnexplained || c.path.back() == "device busy, host silent" || c.path.back() == "device idle")
      continue;
    if (c.path.back().starts_with("wait for lock ") || c.path.back() == "pool wait" || c.path.back() == "emit text")
      continue;  // by chance
    Calls& sum = calls[joined(c.path)];
    sum.a += c.a_calls, sum.b += c.b_calls;
  }
  for (const auto& [what, c] : calls) {
    const double larger = std::max(c.a, c.b);
    if (std::abs(c.a - c.b) <= 0.1 * larger || larger < 0.05) continue;
    e.counts.push_back(fmt::format("{}: {}: {:.4g} -> {:.4g} calls a unit", p.phase, what, c.a, c.b));
  }
}

// The operator (or part) that a row belongs to, with its variant, or what it waits for: what people can act on.
std::string owner(const Contribution& c) {
  std::string text;
  for (size_t i = 1; i < c.path.size(); ++i) {
    if (c.path[i].starts_with("rows=") || c.path[i].starts_with("in ") || c.path[i] == "compute") continue;
    text += (text.empty() ? "" : " > ") + c.path[i];
  }
  return text;
}

// Rows of one owner belong together: a changed shape is one operator's.
std::vector<Contribution> by_owner(const PhaseExplanation& p) {
  std::map<std::string, Contribution> merged;
  for (const Contribution& c : p.rows) {
    Contribution& m = merged[owner(c)];
    m.path = {p.phase, owner(c)};
    m.a_ns += c.a_ns, m.b_ns += c.b_ns, m.a_calls += c.a_calls, m.b_calls += c.b_calls, m.noise_ns += c.noise_ns;
  }
  std::vector<Contribution> rows;
  for (auto& [name, row] : merged) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const Contribution& x, const Contribution& y) {
    return std::abs(x.delta_ns()) > std::abs(y.delta_ns());
  });
  return rows;
}

PhaseExplanation explain_phase(const std::string& phase, Arm a, Arm b, double life_floor) {
  summarise(a);
  summarise(b);
  const bool several_lives = a.lives.size() > 2 && b.lives.size() > 2;
  const double floor = several_lives ? 0 : life_floor;
  const auto noise = [&](double x, double y, double spread_x, double spread_y) {
    return kSpreads * std::hypot(spread_x, spread_y) + floor * std::max(x, y);
  };
  PhaseExplanation p;
  p.phase = phase, p.a_units = a.units, p.b_units = b.units, p.a_ns = a.mean_ns, p.b_ns = b.mean_ns;
  p.a_sum_ns = a.sum_ns, p.b_sum_ns = b.sum_ns;
  p.noise_ns = noise(a.mean_ns, b.mean_ns, a.spread_ns, b.spread_ns);
  std::set<std::vector<std::string>> paths;
  for (const Arm* arm : {&a, &b})
    for (const auto& [path, part] : arm->parts) paths.insert(path);
  for (const auto& path : paths) {
    const Arm::Part &x = a.parts[path], &y = b.parts[path];
    p.rows.push_back({path, x.ns, y.ns, x.calls, y.calls, noise(x.ns, y.ns, x.spread_ns, y.spread_ns)});
    if (path.back() == kUnexplained) p.unexplained_ns += y.ns - x.ns;
  }
  std::stable_sort(p.rows.begin(), p.rows.end(), [](const Contribution& x, const Contribution& y) {
    return std::abs(x.delta_ns()) > std::abs(y.delta_ns());
  });
  const double change = p.b_ns - p.a_ns;
  p.reconciled = std::abs(p.unexplained_ns) <= std::max(p.noise_ns, 0.25 * std::abs(change));
  const std::vector<Contribution> owners = by_owner(p);
  if (!owners.empty() && owners[0].delta_ns() != 0) p.realised = change / owners[0].delta_ns();
  return p;
}

void find_findings(const PhaseExplanation& p, Explanation& e) {
  const double whole = std::max(p.a_ns, p.b_ns);
  for (const Contribution& c : by_owner(p)) {
    if (!c.beyond_noise() || std::abs(c.delta_ns()) < kSmallestShare * whole) continue;
    e.findings.push_back(fmt::format("{}: {}: {} a unit ({} of it, {} of the unit), noise floor {} (A2)", p.phase,
                                     c.path[1], signed_duration(c.delta_ns()), percent_of(c.delta_ns(), c.a_ns),
                                     percent_of(c.delta_ns(), p.a_ns),
                                     duration_text(static_cast<int64_t>(c.noise_ns))));
  }
  if (std::abs(p.b_ns - p.a_ns) > p.noise_ns)
    e.findings.push_back(fmt::format("{}: the unit as a whole: {} ({}), noise floor {} (A2)", p.phase,
                                     signed_duration(p.b_ns - p.a_ns), percent_of(p.b_ns - p.a_ns, p.a_ns),
                                     duration_text(static_cast<int64_t>(p.noise_ns))));
}

void describe_chains(const char* arm, const Trace& t, Explanation& e) {
  for (const LockTime& l : lock_times(t)) {
    if (l.waits == 0) continue;
    std::string text = fmt::format("{}: lock {}: ", arm, l.lock);
    for (size_t i = 0; i < l.waiters.size() && i < 3; ++i)
      text += fmt::format("{}{} waited {}", i ? ", " : "", l.waiters[i].first, duration_text(l.waiters[i].second));
    text += fmt::format("; held by {}{}{}, longest {} while others waited", l.holder,
                        l.holder_span.empty() ? "" : " in " + l.holder_span,
                        l.held_across.empty() ? "" : ", itself blocked in " + l.held_across,
                        duration_text(l.longest_contended_hold_ns));
    e.chains.push_back(text);
  }
}

void compare_devices(const Trace& a, const Trace& b, Explanation& e) {
  const auto x = device_times(a), y = device_times(b);
  if (x.size() != y.size()) e.counts.push_back(fmt::format("devices with work: {} -> {}", x.size(), y.size()));
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    e.device.push_back(
        fmt::format("device {}: busy {} -> {} ({}), kernels {} -> {}, kernel sum {} -> {}, idle {} -> {}", x[i].device,
                    duration_text(x[i].busy_ns), duration_text(y[i].busy_ns),
                    signed_duration(static_cast<double>(y[i].busy_ns - x[i].busy_ns)), x[i].kernels, y[i].kernels,
                    duration_text(x[i].kernel_sum_ns), duration_text(y[i].kernel_sum_ns), duration_text(x[i].idle_ns),
                    duration_text(y[i].idle_ns)));
}

// Recorded counts of level "counters": no clock at all.
void compare_probe_counts(const Trace& a, const Trace& b, Explanation& e) {
  std::set<std::string> names;
  for (const Trace* t : {&a, &b})
    for (const auto& [key, value] : t->facts)
      if (key.starts_with("otherData.count.")) names.insert(key.substr(10));
  for (const std::string& name : names)
    if (fact(a, name) != fact(b, name))
      e.counts.push_back(fmt::format("{}: {} -> {} in all", name.substr(6), fact(a, name).empty() ? "0" : fact(a, name),
                                     fact(b, name).empty() ? "0" : fact(b, name)));
}

double roof_ns(const Trace& t, const std::string& phase) {
  for (const auto& [key, value] : t.facts)
    if (key.starts_with("otherData.setting.roof." + phase)) return std::atof(value.c_str()) * 1e3;
  return 0;
}

void conclude(Explanation& e, bool one_run) {
  e.differs = !e.findings.empty() || !e.counts.empty();
  if (one_run)
    e.verdict = "one run: where its time goes";
  else if (!e.findings.empty())
    e.verdict = "they differ, first of all in " + e.findings.front();
  else if (!e.counts.empty())
    e.verdict = "counts differ, first of all " + e.counts.front() + "; no clock differs beyond the noise";
  else
    e.verdict = "can't tell them apart: no count differs, and no part's time differs beyond its noise floor";
}

}  // namespace

Result<Explanation> explain(const std::vector<Trace>& a, const std::vector<Trace>& b, const ExplainOptions& options) {
  const bool one_run = b.empty();
  const std::vector<Trace>& second = one_run ? a : b;
  std::map<std::string, std::pair<Arm, Arm>> phases;
  const auto collect_units = [&](const std::vector<Trace>& traces, Arm std::pair<Arm, Arm>::* arm) {
    for (const Trace& t : traces)
      for (auto& [phase, units] : partition_units(t, options.within))
        (phases[phase].*arm).lives.push_back(std::move(units));
  };
  collect_units(a, &std::pair<Arm, Arm>::first);
  collect_units(second, &std::pair<Arm, Arm>::second);
  if (phases.empty())
    return invalid("nothing to compare: {}", options.within.empty()
                                                 ? "the traces have no spans on threads"
                                                 : fmt::format("no span has '{}' in its name", options.within));
  Explanation e;
  if (!one_run) {
    compare_settings(a.front(), b.front(), e);
    compare_probe_counts(a.front(), b.front(), e);
    compare_devices(a.front(), b.front(), e);
  }
  for (auto& [phase, arms] : phases) {
    PhaseExplanation p = explain_phase(phase, std::move(arms.first), std::move(arms.second), options.life_floor);
    p.a_roof_ns = roof_ns(a.front(), phase), p.b_roof_ns = roof_ns(second.front(), phase);
    if (!one_run) {
      if ((p.a_units == 0) != (p.b_units == 0))
        e.counts.push_back(
            fmt::format("{}: {} -> {} units: only one of the runs has this phase", phase, p.a_units, p.b_units));
      else
        compare_counts(p, e), find_findings(p, e);
    }
    e.phases.push_back(std::move(p));
  }
  describe_chains("A", a.front(), e);
  if (!one_run) describe_chains("B", b.front(), e);
  conclude(e, one_run);
  return e;
}

namespace {

// A tree of paths, each node the sum of what is below it.
struct Node {
  double a = 0, b = 0, noise = 0, a_calls = 0, b_calls = 0;
  std::map<std::string, Node> below;
};

Node tree_of(const PhaseExplanation& p) {
  Node root;
  for (const Contribution& c : p.rows) {
    Node* n = &root;
    for (size_t i = 0;; ++i) {
      n->a += c.a_ns, n->b += c.b_ns, n->noise += c.noise_ns, n->a_calls += c.a_calls, n->b_calls += c.b_calls;
      if (i + 1 >= c.path.size()) break;
      n = &n->below[c.path[i + 1]];
    }
  }
  return root;
}

using Child = std::pair<const std::string*, const Node*>;

// Largest change first; in one run, largest time first.
std::vector<Child> children(const Node& n, bool by_change) {
  std::vector<Child> rows;
  for (const auto& [name, node] : n.below) rows.push_back({&name, &node});
  const auto weight = [&](const Child& c) { return by_change ? std::abs(c.second->b - c.second->a) : c.second->a; };
  std::stable_sort(rows.begin(), rows.end(), [&](const Child& x, const Child& y) { return weight(x) > weight(y); });
  return rows;
}

void tree_text(const Node& n, int depth, double whole_a, double smallest, bool by_change, int& rows, std::string& out) {
  double left_a = 0, left_b = 0;
  int left = 0;
  for (const auto& [name, node] : children(n, by_change)) {
    const double weight = by_change ? std::abs(node->b - node->a) : node->a;
    if (weight < smallest || rows <= 0) {
      left_a += node->a, left_b += node->b, ++left;
      continue;
    }
    --rows;
    const std::string label = shortened(std::string(2 * depth, ' ') + *name, 46);
    if (by_change)
      out += fmt::format("{:<46} {:>9} {:>9} {:>10} {:>9}{}\n", label, duration_text(static_cast<int64_t>(node->a)),
                         duration_text(static_cast<int64_t>(node->b)), signed_duration(node->b - node->a),
                         percent_of(node->b - node->a, whole_a),
                         std::abs(node->b - node->a) > node->noise ? "" : "  noise");
    else
      out +=
          fmt::format("{:<46} {:>9} {:>7.1f} % {:>9.4g} calls\n", label, duration_text(static_cast<int64_t>(node->a)),
                      whole_a > 0 ? 100 * node->a / whole_a : 0, node->a_calls);
    tree_text(*node, depth + 1, whole_a, smallest, by_change, rows, out);
  }
  if (left > 0 && (left_a > 0 || left_b > 0)) {
    const std::string label = fmt::format("{}({} smaller)", std::string(2 * depth, ' '), left);
    if (by_change)
      out += fmt::format("{:<46} {:>9} {:>9} {:>10}\n", label, duration_text(static_cast<int64_t>(left_a)),
                         duration_text(static_cast<int64_t>(left_b)), signed_duration(left_b - left_a));
    else
      out += fmt::format("{:<46} {:>9}\n", label, duration_text(static_cast<int64_t>(left_a)));
  }
}

}  // namespace

std::string to_text(const Explanation& e, int rows) {
  const bool two = e.verdict.rfind("one run", 0) != 0;
  std::string out = e.verdict + "\n";
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (!lines.empty()) out += fmt::format("\n{}\n", title);
    for (size_t i = 0; i < lines.size() && i < 12; ++i) out += "  - " + lines[i] + "\n";
    if (lines.size() > 12) out += fmt::format("  ... and {} more\n", lines.size() - 12);
  };
  list("settings that differ", e.settings);
  list("counts that differ (no clock needed)", e.counts);
  list("clocks that differ beyond their noise floor", e.findings);
  for (const PhaseExplanation& p : e.phases) {
    out += fmt::format("\n{} a unit ({} and {} units)\n", p.phase, p.a_units, p.b_units);
    const Node root = tree_of(p);
    int left = rows;
    if (two) {
      out += fmt::format("{:<46} {:>9} {:>9} {:>10} {:>9}\n", "", "A", "B", "B - A", "of unit");
      tree_text(root, 0, p.a_ns, 0.002 * std::max(p.a_ns, p.b_ns), true, left, out);
      out += fmt::format("{:<46} {:>9} {:>9} {:>10} {:>9}{}\n", "= all", duration_text(static_cast<int64_t>(p.a_ns)),
                         duration_text(static_cast<int64_t>(p.b_ns)), signed_duration(p.b_ns - p.a_ns),
                         percent_of(p.b_ns - p.a_ns, p.a_ns), std::abs(p.b_ns - p.a_ns) > p.noise_ns ? "" : "  noise");
      out += fmt::format("unexplained: {} of the change{}; {:.0f} % of the largest part's change reached the whole\n",
                         signed_duration(p.unexplained_ns), p.reconciled ? "" : " (unreconciled)", 100 * p.realised);
      if (p.a_units == p.b_units)
        out += fmt::format("sum of all units: {} -> {} ({})\n", duration_text(static_cast<int64_t>(p.a_sum_ns)),
                           duration_text(static_cast<int64_t>(p.b_sum_ns)), signed_duration(p.b_sum_ns - p.a_sum_ns));
    } else {
      tree_text(root, 0, p.a_ns, 0.002 * p.a_ns, false, left, out);
      out += fmt::format("{:<46} {:>9}\n", "= all", duration_text(static_cast<int64_t>(p.a_ns)));
      if (p.a_roof_ns > 0)
        out += fmt::format("roof {}: the unit reaches {:.0f} % of it\n",
                           duration_text(static_cast<int64_t>(p.a_roof_ns)), 100 * p.a_roof_ns / p.a_ns);
    }
  }
  list("devices", e.device);
  list("who waited for whom", e.chains);
  return out;
}

nlohmann::json to_json(const Explanation& e) {
  nlohmann::json j = {{"schema", 1},        {"verdict", e.verdict},   {"differs", e.differs}, {"settings", e.settings},
                      {"counts", e.counts}, {"findings", e.findings}, {"chains", e.chains},   {"devices", e.device},
                      {"level", "A2"}};
  j["phases"] = nlohmann::json::array();
  for (const PhaseExplanation& p : e.phases) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Contribution& c : p.rows)
      rows.push_back({{"path", c.path},
                      {"a_us", c.a_ns / 1e3},
                      {"b_us", c.b_ns / 1e3},
                      {"delta_us", c.delta_ns() / 1e3},
                      {"a_calls", c.a_calls},
                      {"b_calls", c.b_calls},
                      {"noise_us", c.noise_ns / 1e3},
                      {"beyond_noise", c.beyond_noise()}});
    j["phases"].push_back({{"phase", p.phase},
                           {"a_units", p.a_units},
                           {"b_units", p.b_units},
                           {"a_us", p.a_ns / 1e3},
                           {"b_us", p.b_ns / 1e3},
                           {"delta_us", (p.b_ns - p.a_ns) / 1e3},
                           {"noise_us", p.noise_ns / 1e3},
                           {"a_sum_us", p.a_sum_ns / 1e3},
                           {"b_sum_us", p.b_sum_ns / 1e3},
                           {"a_roof_us", p.a_roof_ns / 1e3},
                           {"b_roof_us", p.b_roof_ns / 1e3},
                           {"unexplained_us", p.unexplained_ns / 1e3},
                           {"reconciled", p.reconciled},
                           {"realised", p.realised},
                           {"contributions", rows}});
  }
  return j;
}

}  // namespace lathe
