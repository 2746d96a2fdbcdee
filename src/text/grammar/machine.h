#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "text/grammar/automaton.h"

namespace lathe {

// Where a text may stand in an automaton: a state, what it will return to, and what it has counted.
struct Config {
  int32_t state;
  int32_t stack;  // a frame, or -1: nothing to return to
  int32_t min_left = 0, max_left = kUnbounded;
};

// Stacks of return states, shared by all that grew from them.
struct Frame {
  int32_t back;
  int32_t below;  // a frame, or -1
  int32_t depth;
};

// All places at once that a text may stand in. Usually one: more only where a grammar leaves open what it has read.
struct Position {
  std::vector<Config> configs;
  std::vector<Frame> frames;
};

// Runs an automaton over symbols, and over whole vocabularies of tokens.
//
// A step's mask: what a state allows doesn't depend on what lies below it on the stack, until its rule ends. So for
// every state that is met, once, the whole trie is walked: the tokens that stay inside the rule make a mask, and the
// nodes where the rule ended are written down ("exits"). A step takes that mask, and goes on from the exits alone with
// what is really on the stack. Inside a string that is one copy of a mask and a few hundred nodes instead of 150,000
// tokens. Safe to use from several threads.
class Machine {
 public:
  Machine(Automaton automaton, std::shared_ptr<const TokenTrie> trie);

  Position begin() const;
  bool advance(Position& position, int32_t token) const;  // false, and unchanged, if the token may not come
  void allowed(const Position& position, std::span<uint32_t> mask) const;  // sets bits
  bool may_end(const Position& position) const;
  bool may_go_on(const Position& position) const;
  int64_t bytes() const;

 private:
  static constexpr int kMostDepth = 2000;     // frames of one stack
  static constexpr size_t kMostConfigs = 64;  // a grammar that is more ambiguous loses the others
  static constexpr int64_t kMostCached = int64_t{48} << 20;

  // Tokens: as bits, or one by one where they are few.
  struct TokenSet {
    std::vector<uint32_t> bits;
    std::vector<int32_t> few;
    int64_t bytes() const { return static_cast<int64_t>((bits.size() + few.size()) * 4); }
  };
  struct Exit {
    int32_t node, ticks;
  };
  struct Ticked {
    int32_t ticks, token;
  };
  struct Inside {
    TokenSet tokens;  // all that stay inside or end with the rule, for a rule that doesn't count at its limits
    std::vector<Exit> exits;
    int depth = 0;  // frames pushed on the way
    // Of rules that count: tokens by ticks, those that came over an edge that needs the minimum apart.
    std::vector<Ticked> staying, ending;
    std::vector<TokenSet> staying_up_to;  // [t]: tokens of at most t ticks
    int64_t bytes() const;
  };
  struct Walk;  // scratch

  void step(Config config, Symbol symbol, std::vector<Frame>& frames, std::vector<Config>& out) const;
  void enter(Config config, Symbol symbol, std::vector<Frame>& frames, std::vector<Config>& out) const;
  bool pop(Config& config, const std::vector<Frame>& frames) const;
  static bool may_take(const Automaton::Edge& edge, const Config& config) {
    return !(edge.flags & Automaton::kTick && config.max_left <= 0) &&
           !(edge.flags & Automaton::kNeedsMin && config.min_left > 0);
  }
  bool may_leave(const Config& config) const {
    const Automaton::State& state = automaton_.states[config.state];
    return state.final && !(state.counts && config.min_left > 0);
  }
  bool reaches_bottom(Config config, const std::vector<Frame>& frames) const;
  static void add(Config config, const std::vector<Frame>& frames, std::vector<Config>& out);
  static void drop_unused(Position& position);

  template <class Visit>
  void walk(int32_t root, Walk& walk, Visit visit) const;
  std::shared_ptr<const Inside> inside(int32_t state) const;
  Inside look(int32_t state) const;
  Inside look_plainly(int32_t state) const;
  void sort_by_ticks(Inside& inside) const;
  TokenSet set_of(std::vector<int32_t> tokens) const;
  static void unite(const TokenSet& set, std::span<uint32_t> mask);
  void allow_counted(const Inside& inside, const Config& config, std::span<uint32_t> mask) const;
  void allow_below(int32_t node, Config config, Walk& walk, std::span<uint32_t> mask) const;

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<int32_t, std::shared_ptr<const Inside>> seen_;
  mutable int64_t seen_bytes_ = 0;
};

}  // namespace lathe
