#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "text/grammar/token_trie.h"

namespace lathe {

inline constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

// A pushdown automaton over symbols: one deterministic automaton a rule, whose states may also call a rule and go on
// elsewhere when that has ended. Every state can still reach an end. A rule never begins by calling itself, directly or
// through others, and never ends before it has read something (what may be empty is skipped where it is called).
//
// A rule may count: an edge then ticks, and another may be taken only at min ticks; no tick goes beyond max. Both
// numbers come with the call. Such a rule calls no other, so that only the innermost rule counts.
struct Automaton {
  enum EdgeFlags : uint8_t { kTick = 1, kNeedsMin = 2 };
  struct Edge {
    Symbol low, high;
    uint8_t flags;
    int32_t to;
  };
  struct Call {
    int32_t rule;
    int32_t back;  // where to go on; -1: the caller ends with the rule
    int32_t min, max;
  };
  struct State {
    int32_t edges, calls;  // where its own begin; they end where the next state's begin
    bool final = false;
    bool counts = false;
    bool plain = false;                  // of a rule that calls nothing
    bool first_added = false;            // added tokens may be read here, or in a rule that is called here
    std::array<uint64_t, 4> first = {};  // bytes likewise
  };

  std::vector<State> states;  // one more at the end
  std::vector<Edge> edges;    // of a state: sorted, disjoint
  std::vector<Call> calls;
  std::vector<int32_t> starts;  // by rule; the text's is rule 0

  std::span<const Edge> edges_of(int32_t s) const {
    return {edges.data() + states[s].edges, edges.data() + states[s + 1].edges};
  }
  std::span<const Call> calls_of(int32_t s) const {
    return {calls.data() + states[s].calls, calls.data() + states[s + 1].calls};
  }
  bool may_read(int32_t s, Symbol symbol) const {
    const State& state = states[s];
    return symbol < 256 ? (state.first[symbol / 64] >> (symbol % 64) & 1) != 0 : state.first_added;
  }
  int64_t bytes() const {
    return static_cast<int64_t>(states.size() * sizeof(State) + edges.size() * sizeof(Edge) +
                                calls.size() * sizeof(Call) + starts.size() * 4);
  }
};

}  // namespace lathe
