#include "text/grammar/automaton_builder.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace lathe {

namespace {
struct SubsetHash {
  size_t operator()(const std::vector<int32_t>& s) const {
    uint64_t h = s.size();
    for (const int32_t x : s) h = (h ^ static_cast<uint32_t>(x)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return h;
  }
};
}  // namespace

int32_t AutomatonBuilder::add_rule(std::string name) {
  budget_->spend(64);
  const int32_t begin = add_state(), end = add_state();
  rules_.push_back({begin, end, std::move(name)});
  return static_cast<int32_t>(rules_.size()) - 1;
}

int32_t AutomatonBuilder::add_state() {
  // A spent budget gives the same state again: whoever builds in a loop needn't ask.
  if (!budget_->spend(8) && !arcs_of_.empty()) return static_cast<int32_t>(arcs_of_.size()) - 1;
  arcs_of_.push_back(-1);
  return static_cast<int32_t>(arcs_of_.size()) - 1;
}

void AutomatonBuilder::add_arc(int32_t from, Arc arc) {
  if (!budget_->spend(sizeof(Arc))) return;
  arc.next = arcs_of_[from];
  arcs_of_[from] = static_cast<int32_t>(arcs_.size());
  arcs_.push_back(arc);
}

void AutomatonBuilder::empty(int32_t from, int32_t to) { add_arc(from, {-1, to, ArcKind::kEmpty, 0, 0, 0, 0}); }

void AutomatonBuilder::range(int32_t from, Symbol low, Symbol high, int32_t to, uint8_t flags) {
  add_arc(from, {-1, to, ArcKind::kRange, flags, low, high, 0});
}

int32_t AutomatonBuilder::text(int32_t from, std::string_view bytes) {
  for (const char c : bytes) {
    const int32_t next = add_state();
    range(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

void AutomatonBuilder::text(int32_t from, std::string_view bytes, int32_t to) { empty(text(from, bytes), to); }

int32_t AutomatonBuilder::call_number(Called called) {
  const auto at = std::lower_bound(call_numbers_.begin(), call_numbers_.end(), called,
                                   [](const auto& entry, const Called& c) { return entry.first < c; });
  if (at != call_numbers_.end() && at->first == called) return at->second;
  const int32_t number = static_cast<int32_t>(calls_.size());
  call_numbers_.insert(at, {called, number});
  calls_.push_back(called);
  return number;
}

void AutomatonBuilder::call(int32_t from, int32_t rule, int32_t to, int32_t min, int32_t max) {
  add_arc(from, {-1, to, ArcKind::kCall, 0, 0, 0, call_number({rule, min, max})});
}

// Adds what is reached without reading; calls of rules that may be empty may be passed by.
void AutomatonBuilder::close(Subset& states) {
  mark_.resize(arcs_of_.size(), 0);
  ++epoch_;
  for (const int32_t s : states) mark_[s] = epoch_;
  for (size_t i = 0; i < states.size(); ++i) {
    for (int32_t a = arcs_of_[states[i]]; a >= 0; a = arcs_[a].next) {
      const Arc& arc = arcs_[a];
      if (arc.kind == ArcKind::kRange || mark_[arc.to] == epoch_) continue;
      if (arc.kind == ArcKind::kCall && !may_be_empty_[calls_[arc.call].rule]) continue;
      mark_[arc.to] = epoch_;
      states.push_back(arc.to);
    }
  }
  std::sort(states.begin(), states.end());
}

// What can be read from a set of states, cut into disjoint ranges, and where that leads.
void AutomatonBuilder::leave(const Subset& from, std::vector<std::pair<Deterministic::Edge, Subset>>& edges,
                             std::vector<std::pair<int32_t, Subset>>& calls) {
  std::vector<const Arc*> ranges;
  std::map<int32_t, Subset> called;
  std::vector<uint32_t> cuts;
  for (const int32_t s : from) {
    for (int32_t a = arcs_of_[s]; a >= 0; a = arcs_[a].next) {
      const Arc& arc = arcs_[a];
      if (arc.kind == ArcKind::kRange) {
        ranges.push_back(&arc);
        cuts.push_back(arc.low);
        cuts.push_back(arc.high + 1u);
      } else if (arc.kind == ArcKind::kCall && has_more_[calls_[arc.call].rule]) {
        called[arc.call].push_back(arc.to);
      }
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Subset> targets(cuts.size());
  std::vector<uint8_t> flags(cuts.size(), 0);
  for (const Arc* arc : ranges) {
    size_t i = std::lower_bound(cuts.begin(), cuts.end(), arc->low) - cuts.begin();
    for (; cuts[i] <= arc->high; ++i) {
      targets[i].push_back(arc->to);
      flags[i] |= arc->flags;
    }
  }
  auto settle = [&](Subset& s) {
    std::sort(s.begin(), s.end());
    s.erase(std::unique(s.begin(), s.end()), s.end());
    close(s);
  };
  edges.clear();
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (targets[i].empty()) continue;
    settle(targets[i]);
    const Symbol low = static_cast<Symbol>(cuts[i]), high = static_cast<Symbol>(cuts[i + 1] - 1);
    if (!edges.empty() && edges.back().first.high + 1 == low && edges.back().first.flags == flags[i] &&
        edges.back().second == targets[i])
      edges.back().first.high = high;
    else
      edges.push_back({{low, high, flags[i], -1}, std::move(targets[i])});
  }
  calls.clear();
  for (auto& [number, subset] : called) {
    settle(subset);
    calls.push_back({number, std::move(subset)});
  }
}

AutomatonBuilder::Deterministic AutomatonBuilder::determine(const Rule& rule) {
  Deterministic d;
  std::unordered_map<Subset, int32_t, SubsetHash> numbers;
  std::vector<const Subset*> todo;
  int64_t used = 0;
  auto number_of = [&](Subset s) {
    const auto [at, is_new] = numbers.try_emplace(std::move(s), static_cast<int32_t>(d.states.size()));
    if (is_new) {
      used += static_cast<int64_t>(at->first.size()) * 4 + 200;
      budget_->spend(static_cast<int64_t>(at->first.size()) * 4 + 200);
      d.states.emplace_back();
      d.states.back().final = std::binary_search(at->first.begin(), at->first.end(), rule.end);
      todo.push_back(&at->first);
    }
    return at->second;
  };
  Subset start = {rule.begin};
  close(start);
  number_of(std::move(start));
  std::vector<std::pair<Deterministic::Edge, Subset>> edges;
  std::vector<std::pair<int32_t, Subset>> calls;
  for (size_t i = 0; i < todo.size() && !budget_->spent(); ++i) {
    leave(*todo[i], edges, calls);
    for (auto& [edge, subset] : edges) {
      edge.to = number_of(std::move(subset));
      budget_->spend(sizeof(edge));
      d.states[i].edges.push_back(edge);
    }
    for (auto& [number, subset] : calls) {
      const int32_t to = number_of(std::move(subset));
      d.states[i].calls.push_back({number, to});
    }
  }
  budget_->give_back(used);
  trim(d);
  return d;
}

// Takes out what can't reach the end.
void AutomatonBuilder::trim(Deterministic& d) {
  const size_t n = d.states.size();
  std::vector<std::vector<int32_t>> sources(n);
  std::vector<char> alive(n, 0);
  std::vector<int32_t> todo;
  for (size_t i = 0; i < n; ++i) {
    for (const auto& e : d.states[i].edges) sources[e.to].push_back(static_cast<int32_t>(i));
    for (const auto& [number, to] : d.states[i].calls) sources[to].push_back(static_cast<int32_t>(i));
    if (d.states[i].final) alive[i] = 1, todo.push_back(static_cast<int32_t>(i));
  }
  while (!todo.empty()) {
    const int32_t s = todo.back();
    todo.pop_back();
    for (const int32_t source : sources[s])
      if (!alive[source]) alive[source] = 1, todo.push_back(source);
  }
  for (auto& state : d.states) {
    std::erase_if(state.edges, [&](const auto& e) { return !alive[e.to]; });
    std::erase_if(state.calls, [&](const auto& c) { return !alive[c.second]; });
  }
}

// Follows a rule's states with "something was read" as part of the state; true if that taught something new.
bool AutomatonBuilder::sweep(const Rule& rule, size_t r) {
  std::vector<std::pair<int32_t, bool>> todo = {{rule.begin, false}};
  std::unordered_map<int32_t, int> seen;  // bit 1: before reading, bit 2: after
  seen[rule.begin] = 1;
  auto reach = [&](int32_t s, bool read) {
    int& bits = seen[s];
    if (bits & (read ? 2 : 1)) return;
    bits |= read ? 2 : 1;
    todo.push_back({s, read});
  };
  while (!todo.empty()) {
    const auto [s, read] = todo.back();
    todo.pop_back();
    for (int32_t a = arcs_of_[s]; a >= 0; a = arcs_[a].next) {
      const Arc& arc = arcs_[a];
      if (arc.kind == ArcKind::kEmpty) reach(arc.to, read);
      if (arc.kind == ArcKind::kRange) reach(arc.to, true);
      if (arc.kind != ArcKind::kCall) continue;
      if (may_be_empty_[calls_[arc.call].rule]) reach(arc.to, read);
      if (has_more_[calls_[arc.call].rule]) reach(arc.to, true);
    }
  }
  const int end = seen.contains(rule.end) ? seen[rule.end] : 0;
  const bool news = ((end & 1) != 0 && !may_be_empty_[r]) || ((end & 2) != 0 && !has_more_[r]);
  if (end & 1) may_be_empty_[r] = 1;
  if (end & 2) has_more_[r] = 1;
  return news;
}

void AutomatonBuilder::find_empty_rules() {
  may_be_empty_.assign(rules_.size(), 0);
  has_more_.assign(rules_.size(), 0);
  // Later rules are mostly called by earlier ones: from the end, few rounds are needed.
  for (bool news = true; news && budget_->spend(0);) {
    news = false;
    for (size_t r = rules_.size(); r-- > 0;)
      if (!may_be_empty_[r] || !has_more_[r]) news |= sweep(rules_[r], r);
  }
}

int32_t AutomatonBuilder::product(int32_t a, int32_t b, bool both) {
  may_be_empty_.assign(rules_.size(), 0);
  has_more_.assign(rules_.size(), 0);
  const Deterministic x = determine(rules_[a]), y = determine(rules_[b]);
  const int32_t rule = add_rule(rules_[a].name);
  constexpr int32_t kOutside = -1;  // of the second
  std::map<std::pair<int32_t, int32_t>, int32_t> numbers;
  std::vector<std::pair<int32_t, int32_t>> todo;
  auto state_of = [&](int32_t i, int32_t j) {
    const auto [at, is_new] = numbers.try_emplace({i, j}, -1);
    if (is_new) {
      at->second = add_state();
      budget_->spend(64);
      todo.push_back({i, j});
      const bool in_second = j != kOutside && y.states[j].final;
      if (x.states[i].final && in_second == both) empty(at->second, rules_[rule].end);
    }
    return at->second;
  };
  empty(rules_[rule].begin, state_of(0, 0));
  for (size_t k = 0; k < todo.size() && !budget_->spent(); ++k) {
    const auto [i, j] = todo[k];
    const int32_t from = numbers[{i, j}];
    for (const auto& e : x.states[i].edges) {
      uint32_t low = e.low;
      if (j != kOutside) {
        for (const auto& f : y.states[j].edges) {
          if (f.high < low || f.low > e.high) continue;
          if (f.low > low && !both)
            range(from, static_cast<Symbol>(low), static_cast<Symbol>(f.low - 1), state_of(e.to, kOutside));
          low = std::max<uint32_t>(low, f.low);
          const Symbol high = std::min(e.high, f.high);
          range(from, static_cast<Symbol>(low), high, state_of(e.to, f.to));
          low = high + 1u;
          if (low > e.high) break;
        }
      }
      if (low <= e.high && !both) range(from, static_cast<Symbol>(low), e.high, state_of(e.to, kOutside));
    }
  }
  return rule;
}

bool AutomatonBuilder::has_text(int32_t r) {
  may_be_empty_.assign(rules_.size(), 0);
  has_more_.assign(rules_.size(), 0);
  sweep(rules_[r], r);
  return may_be_empty_[r] || has_more_[r];
}

// A depth-first search over "begins by calling".
Status AutomatonBuilder::check_left_recursion(const Automaton& automaton) const {
  std::vector<char> color(rules_.size(), 0);  // 1: on the path, 2: done
  struct Visit {
    int32_t rule;
    size_t next;
  };
  for (size_t root = 0; root < rules_.size(); ++root) {
    if (color[root] != 0 || automaton.starts[root] < 0) continue;
    std::vector<Visit> path = {{static_cast<int32_t>(root), 0}};
    color[root] = 1;
    while (!path.empty()) {
      const int32_t rule = path.back().rule;
      const auto calls = automaton.calls_of(automaton.starts[rule]);
      if (path.back().next == calls.size()) {
        color[rule] = 2;
        path.pop_back();
        continue;
      }
      const int32_t called = calls[path.back().next++].rule;
      if (color[called] == 1)
        return invalid("rule '{}' begins with itself (left recursion); write it with repetition", rules_[called].name);
      if (color[called] == 0) color[called] = 1, path.push_back({called, 0});
    }
  }
  return Status::ok();
}

// By rounds, as far as rules begin with rules; there is no left recursion.
void AutomatonBuilder::find_first_bytes(Automaton& automaton) const {
  const size_t n = automaton.states.size() - 1;
  for (size_t s = 0; s < n; ++s) {
    auto& state = automaton.states[s];
    state.first = {};
    state.first_added = false;
    for (const auto& e : automaton.edges_of(static_cast<int32_t>(s))) {
      for (uint32_t c = e.low; c <= std::min<uint32_t>(e.high, 255); ++c)
        state.first[c / 64] |= uint64_t{1} << (c % 64);
      state.first_added |= e.high >= kFirstAddedSymbol;
    }
  }
  // Starts first, in the order of who begins with whom; then every state has what it needs in one look.
  std::vector<char> done(rules_.size(), 0);
  std::vector<int32_t> path;
  auto add_called = [&](int32_t s) {
    auto& state = automaton.states[s];
    for (const auto& call : automaton.calls_of(s)) {
      const auto& start = automaton.states[automaton.starts[call.rule]];
      for (int i = 0; i < 4; ++i) state.first[i] |= start.first[i];
      state.first_added |= start.first_added;
    }
  };
  for (size_t root = 0; root < rules_.size(); ++root) {
    if (automaton.starts[root] >= 0) path.push_back(static_cast<int32_t>(root));
    while (!path.empty()) {
      const int32_t rule = path.back();
      const size_t before = path.size();
      if (!done[rule])
        for (const auto& call : automaton.calls_of(automaton.starts[rule]))
          if (!done[call.rule]) path.push_back(call.rule);
      if (path.size() > before) continue;
      if (!done[rule]) add_called(automaton.starts[rule]);
      done[rule] = 1;
      path.pop_back();
    }
  }
  for (size_t s = 0; s < n; ++s) add_called(static_cast<int32_t>(s));
}

Result<Automaton> AutomatonBuilder::build() {
  LATHE_RETURN_IF_ERROR(budget_->status());
  find_empty_rules();
  LATHE_RETURN_IF_ERROR(budget_->status());
  if (!may_be_empty_[0] && !has_more_[0]) return invalid("no text can satisfy it");

  Automaton out;
  out.starts.assign(rules_.size(), -1);
  std::vector<int32_t> todo = {0};
  std::vector<char> wanted(rules_.size(), 0);
  wanted[0] = 1;
  auto new_state = [&] {
    return Automaton::State{static_cast<int32_t>(out.edges.size()), static_cast<int32_t>(out.calls.size())};
  };
  auto put = [&](const Deterministic& d, const Deterministic::State& state, int32_t base, bool final, bool plain) {
    Automaton::State s = new_state();
    s.final = final;
    s.plain = plain;
    for (const auto& e : state.edges) {
      out.edges.push_back({e.low, e.high, e.flags, base + e.to});
      s.counts |= e.flags != 0;
    }
    for (const auto& [number, to] : state.calls) {
      const Called& called = calls_[number];
      const auto& back = d.states[to];
      const bool tail = back.final && back.edges.empty() && back.calls.empty();
      out.calls.push_back({called.rule, tail ? -1 : base + to, called.min, called.max});
      if (!wanted[called.rule]) wanted[called.rule] = 1, todo.push_back(called.rule);
    }
    out.states.push_back(s);
  };
  while (!todo.empty()) {
    const int32_t r = todo.back();
    todo.pop_back();
    const Deterministic d = determine(rules_[r]);
    LATHE_RETURN_IF_ERROR(budget_->status());
    const int32_t base = static_cast<int32_t>(out.states.size());
    const bool plain = std::all_of(d.states.begin(), d.states.end(), [](const auto& s) { return s.calls.empty(); });
    for (const auto& state : d.states) put(d, state, base, state.final, plain);
    out.starts[r] = base;
    if (r != 0 && d.states[0].final) {  // the empty text was passed by where the rule is called
      out.starts[r] = static_cast<int32_t>(out.states.size());
      put(d, d.states[0], base, false, plain);
    }
  }
  // States of a rule that counts all count: between two ticks, too.
  for (size_t i = 0; i < out.states.size(); ++i) {
    const auto& edges_end =
        i + 1 < out.states.size() ? out.states[i + 1].edges : static_cast<int32_t>(out.edges.size());
    for (int32_t e = out.states[i].edges; e < edges_end; ++e)
      if (out.states[i].counts && !out.states[out.edges[e].to].final) out.states[out.edges[e].to].counts = true;
  }
  out.states.push_back(new_state());
  LATHE_RETURN_IF_ERROR(check_left_recursion(out));
  find_first_bytes(out);
  return out;
}

}  // namespace lathe
