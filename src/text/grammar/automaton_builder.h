#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/budget.h"

namespace lathe {

// Rules as nondeterministic automata, put together arc by arc, then made deterministic. Every rule has a state where it
// begins and one where it ends; states belong to the rule whose states lead to them.
class AutomatonBuilder {
 public:
  explicit AutomatonBuilder(Budget& budget) : budget_(&budget) {}

  struct Rule {
    int32_t begin, end;
    std::string name;  // for messages; may be ""
  };

  int32_t add_rule(std::string name);  // the first is the text's
  const Rule& rule(int32_t r) const { return rules_[r]; }
  int32_t rules() const { return static_cast<int32_t>(rules_.size()); }

  int32_t add_state();
  void empty(int32_t from, int32_t to);
  void range(int32_t from, Symbol low, Symbol high, int32_t to, uint8_t flags = 0);
  void text(int32_t from, std::string_view bytes, int32_t to);
  int32_t text(int32_t from, std::string_view bytes);  // to a new state
  void call(int32_t from, int32_t rule, int32_t to, int32_t min = 0, int32_t max = kUnbounded);

  // New rules, of texts that are in both, or in the first and not in the second. Both call nothing and count nothing.
  int32_t both(int32_t a, int32_t b) { return product(a, b, true); }
  int32_t without(int32_t a, int32_t b) { return product(a, b, false); }
  // Whether a rule that calls nothing has a text at all.
  bool has_text(int32_t rule);

  Result<Automaton> build();
  Budget& budget() { return *budget_; }

 private:
  enum class ArcKind : uint8_t { kEmpty, kRange, kCall };
  struct Arc {
    int32_t next, to;  // next: of the same state, or -1
    ArcKind kind;
    uint8_t flags;
    Symbol low, high;  // kRange
    int32_t call;      // kCall: into calls_
  };
  struct Called {
    int32_t rule, min, max;
    friend auto operator<=>(const Called&, const Called&) = default;
  };
  // One rule made deterministic: states by number, 0 the first.
  struct Deterministic {
    struct Edge {
      Symbol low, high;
      uint8_t flags;
      int32_t to;
    };
    struct State {
      std::vector<Edge> edges;
      std::vector<std::pair<int32_t, int32_t>> calls;  // into calls_, and where to go on
      bool final = false;
    };
    std::vector<State> states;
  };
  using Subset = std::vector<int32_t>;  // sorted

  void add_arc(int32_t from, Arc arc);
  int32_t call_number(Called called);
  void close(Subset& states);
  Deterministic determine(const Rule& rule);
  void leave(const Subset& from, std::vector<std::pair<Deterministic::Edge, Subset>>& edges,
             std::vector<std::pair<int32_t, Subset>>& calls);
  static void trim(Deterministic& d);
  int32_t product(int32_t a, int32_t b, bool both);
  void find_empty_rules();
  bool sweep(const Rule& rule, size_t r);
  Status check_left_recursion(const Automaton& automaton) const;
  void find_first_bytes(Automaton& automaton) const;

  Budget* budget_;
  std::vector<Rule> rules_;
  std::vector<int32_t> arcs_of_;  // by state: its first arc, or -1
  std::vector<Arc> arcs_;
  std::vector<Called> calls_;
  std::vector<std::pair<Called, int32_t>> call_numbers_;  // sorted
  std::vector<char> may_be_empty_, has_more_;             // by rule: it has the empty text, it has others
  std::vector<int32_t> mark_;                             // scratch of close()
  int32_t epoch_ = 0;
};

}  // namespace lathe
