#include "text/grammar/machine.h"

#include <algorithm>

#include "base/check.h"

namespace lathe {

namespace {
constexpr int32_t kBottom = -1;
constexpr int32_t kMostTickSets = 16;

void set_bit(std::span<uint32_t> mask, int32_t token) {
  if (const size_t word = token / 32; word < mask.size()) mask[word] |= uint32_t{1} << (token % 32);
}
void clear_bit(std::span<uint32_t> mask, int32_t token) {
  if (const size_t word = token / 32; word < mask.size()) mask[word] &= ~(uint32_t{1} << (token % 32));
}
}  // namespace

// Configurations by depth in the trie, and the frames that they stand on.
struct Machine::Walk {
  std::vector<Frame> frames;
  size_t own_frames = 0;  // those of the position
  std::vector<std::vector<Config>> levels;
  std::vector<size_t> frames_at;  // by level: how many there were
};

int64_t Machine::Inside::bytes() const {
  int64_t sum = tokens.bytes() +
                static_cast<int64_t>(exits.size() * sizeof(Exit) + (staying.size() + ending.size()) * sizeof(Ticked));
  for (const TokenSet& s : staying_up_to) sum += s.bytes();
  return sum + 200;
}

Machine::Machine(Automaton automaton, std::shared_ptr<const TokenTrie> trie)
    : automaton_(std::move(automaton)), trie_(std::move(trie)) {}

int64_t Machine::bytes() const {
  const std::lock_guard lock(mutex_);
  return automaton_.bytes() + seen_bytes_;
}

Position Machine::begin() const { return {{{automaton_.starts[0], kBottom}}, {}}; }

// Puts a configuration in, unless it is there.
void Machine::add(Config config, const std::vector<Frame>& frames, std::vector<Config>& out) {
  auto same_stack = [&](int32_t a, int32_t b) {
    for (; a != b; a = frames[a].below, b = frames[b].below)
      if (a < 0 || b < 0 || frames[a].back != frames[b].back || frames[a].depth != frames[b].depth) return false;
    return true;
  };
  for (const Config& c : out)
    if (c.state == config.state && c.min_left == config.min_left && c.max_left == config.max_left &&
        same_stack(c.stack, config.stack))
      return;
  if (out.size() < kMostConfigs) out.push_back(config);
}

// Reads a symbol in the configuration's state or in a rule that is called there.
void Machine::enter(Config config, Symbol symbol, std::vector<Frame>& frames, std::vector<Config>& out) const {
  const auto edges = automaton_.edges_of(config.state);
  const auto edge = std::partition_point(edges.begin(), edges.end(), [&](const auto& e) { return e.high < symbol; });
  if (edge != edges.end() && edge->low <= symbol && may_take(*edge, config)) {
    Config next = config;
    next.state = edge->to;
    if (edge->flags & Automaton::kTick) {
      if (next.max_left != kUnbounded) --next.max_left;
      if (next.min_left > 0) --next.min_left;
    }
    add(next, frames, out);
  }
  for (const Automaton::Call& call : automaton_.calls_of(config.state)) {
    const int32_t start = automaton_.starts[call.rule];
    if (!automaton_.may_read(start, symbol)) continue;
    int32_t stack = config.stack;
    if (call.back >= 0) {
      const int32_t depth = stack < 0 ? 1 : frames[stack].depth + 1;
      if (depth > kMostDepth) continue;
      frames.push_back({call.back, stack, depth});
      stack = static_cast<int32_t>(frames.size()) - 1;
    }
    enter({start, stack, call.min, call.max}, symbol, frames, out);
  }
}

// To what the rule returns to, if it may end here.
bool Machine::pop(Config& config, const std::vector<Frame>& frames) const {
  if (!may_leave(config) || config.stack == kBottom) return false;
  config = {frames[config.stack].back, frames[config.stack].below};
  return true;
}

void Machine::step(Config config, Symbol symbol, std::vector<Frame>& frames, std::vector<Config>& out) const {
  do {
    if (automaton_.may_read(config.state, symbol)) enter(config, symbol, frames, out);
  } while (pop(config, frames));
}

bool Machine::reaches_bottom(Config config, const std::vector<Frame>& frames) const {
  while (pop(config, frames)) {
  }
  return may_leave(config) && config.stack == kBottom;
}

bool Machine::may_end(const Position& position) const {
  return std::any_of(position.configs.begin(), position.configs.end(),
                     [&](const Config& c) { return reaches_bottom(c, position.frames); });
}

bool Machine::may_go_on(const Position& position) const {
  for (Config c : position.configs) {
    do {
      const auto edges = automaton_.edges_of(c.state);
      if (!automaton_.calls_of(c.state).empty() ||
          std::any_of(edges.begin(), edges.end(), [&](const auto& e) { return may_take(e, c); }))
        return true;
    } while (pop(c, position.frames));
  }
  return false;
}

// Keeps the frames that configurations stand on.
void Machine::drop_unused(Position& position) {
  if (position.frames.size() < 64) return;
  std::vector<int32_t> moved(position.frames.size(), -1);
  for (const Config& c : position.configs)
    for (int32_t f = c.stack; f >= 0 && moved[f] < 0; f = position.frames[f].below) moved[f] = 0;
  std::vector<Frame> kept;
  for (size_t f = 0; f < moved.size(); ++f) {  // what lies below comes before
    if (moved[f] < 0) continue;
    Frame frame = position.frames[f];
    if (frame.below >= 0) frame.below = moved[frame.below];
    moved[f] = static_cast<int32_t>(kept.size());
    kept.push_back(frame);
  }
  for (Config& c : position.configs)
    if (c.stack >= 0) c.stack = moved[c.stack];
  position.frames = std::move(kept);
}

bool Machine::advance(Position& position, int32_t token) const {
  const std::span<const Symbol> symbols = trie_->symbols(token);
  if (symbols.empty()) return false;
  const size_t frames = position.frames.size();
  std::vector<Config> from = position.configs, to;
  for (const Symbol s : symbols) {
    to.clear();
    for (const Config& c : from) step(c, s, position.frames, to);
    std::swap(from, to);
    if (from.empty()) {
      position.frames.resize(frames);
      return false;
    }
  }
  position.configs = std::move(from);
  drop_unused(position);
  return true;
}

// Visits the nodes below `root` that can be reached from walk.levels[0]: visit(node, configurations).
template <class Visit>
void Machine::walk(int32_t root, Walk& walk, Visit visit) const {
  const auto& nodes = trie_->nodes();
  const int base = nodes[root].depth;
  walk.frames_at.resize(std::max<size_t>(walk.frames_at.size(), 1));
  walk.frames_at[0] = walk.frames.size();
  for (int32_t n = root + 1; n < nodes[root].end;) {
    const size_t level = nodes[n].depth - base;
    if (walk.levels.size() <= level) walk.levels.resize(level + 1);
    if (walk.frames_at.size() <= level) walk.frames_at.resize(level + 1);
    walk.frames.resize(walk.frames_at[level - 1]);
    std::vector<Config>& here = walk.levels[level];
    here.clear();
    for (const Config& c : walk.levels[level - 1]) step(c, nodes[n].symbol, walk.frames, here);
    walk.frames_at[level] = walk.frames.size();
    if (here.empty()) {
      n = nodes[n].end;
      continue;
    }
    visit(n, here);
    ++n;
  }
  walk.frames.resize(walk.frames_at[0]);
}

Machine::TokenSet Machine::set_of(std::vector<int32_t> tokens) const {
  TokenSet set;
  const size_t words = (static_cast<size_t>(trie_->size()) + 31) / 32;
  if (tokens.size() < words) {
    set.few = std::move(tokens);
  } else {
    set.bits.assign(words, 0);
    for (const int32_t t : tokens) set_bit(set.bits, t);
  }
  return set;
}

void Machine::unite(const TokenSet& set, std::span<uint32_t> mask) {
  for (size_t i = 0; i < std::min(set.bits.size(), mask.size()); ++i) mask[i] |= set.bits[i];
  for (const int32_t t : set.few) set_bit(mask, t);
}

Machine::Inside Machine::look(int32_t state) const {
  Inside inside;
  Walk w;
  w.levels.push_back({{state, kBottom}});
  std::vector<int32_t> tokens;
  const auto& nodes = trie_->nodes();
  walk(0, w, [&](int32_t node, const std::vector<Config>& configs) {
    for (const int32_t t : trie_->tokens_at(node)) tokens.push_back(t);
    const bool inner = nodes[node].end > node + 1;
    bool exits = false;
    for (const Config& c : configs) {
      if (c.stack >= 0) inside.depth = std::max(inside.depth, w.frames[c.stack].depth);
      exits |= inner && reaches_bottom(c, w.frames);
    }
    if (exits) inside.exits.push_back({node, 0});
  });
  inside.tokens = set_of(std::move(tokens));
  return inside;
}

// The same for a rule that calls nothing, where one state is all there is to follow; with ticks for a rule that counts,
// whatever it has counted so far.
Machine::Inside Machine::look_plainly(int32_t state) const {
  Inside inside;
  struct At {
    int32_t state, ticks;
  };
  std::vector<At> levels = {{state, 0}};  // by depth in the trie
  std::vector<int32_t> all;
  const bool counts = automaton_.states[state].counts;
  const auto& nodes = trie_->nodes();
  for (int32_t n = 1; n < nodes[0].end;) {
    levels.resize(nodes[n].depth);
    const At from = levels.back();
    const auto edges = automaton_.edges_of(from.state);
    const auto edge =
        std::partition_point(edges.begin(), edges.end(), [&](const auto& e) { return e.high < nodes[n].symbol; });
    if (edge == edges.end() || edge->low > nodes[n].symbol) {
      n = nodes[n].end;
      continue;
    }
    const At to = {edge->to, from.ticks + ((edge->flags & Automaton::kTick) != 0)};
    levels.push_back(to);
    const bool needs_min = edge->flags & Automaton::kNeedsMin;
    for (const int32_t t : trie_->tokens_at(n)) {
      all.push_back(t);
      if (counts) (needs_min ? inside.ending : inside.staying).push_back({to.ticks, t});
    }
    if (automaton_.states[to.state].final && nodes[n].end > n + 1) inside.exits.push_back({n, to.ticks});
    ++n;
  }
  inside.tokens = set_of(std::move(all));
  if (counts) sort_by_ticks(inside);
  return inside;
}

void Machine::sort_by_ticks(Inside& inside) const {
  std::stable_sort(inside.staying.begin(), inside.staying.end(),
                   [](const Ticked& a, const Ticked& b) { return a.ticks < b.ticks; });
  std::vector<int32_t> up_to;
  size_t i = 0;
  for (int32_t t = 0; t < kMostTickSets; ++t) {
    for (; i < inside.staying.size() && inside.staying[i].ticks <= t; ++i) up_to.push_back(inside.staying[i].token);
    inside.staying_up_to.push_back(set_of(up_to));
  }
}

std::shared_ptr<const Machine::Inside> Machine::inside(int32_t state) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = seen_.find(state); found != seen_.end()) return found->second;
  }
  auto made = std::make_shared<const Inside>(automaton_.states[state].plain ? look_plainly(state) : look(state));
  const std::lock_guard lock(mutex_);
  if (seen_bytes_ + made->bytes() > kMostCached) {
    seen_.clear();
    seen_bytes_ = 0;
  }
  if (seen_.emplace(state, made).second) seen_bytes_ += made->bytes();
  return made;
}

void Machine::allow_counted(const Inside& inside, const Config& config, std::span<uint32_t> mask) const {
  const int32_t most = config.max_left;
  const auto& staying = inside.staying;
  if (most < kMostTickSets) {
    unite(inside.staying_up_to[most], mask);
  } else {
    // All but those of more ticks: few, and they are taken from a copy, since others may have allowed them.
    std::vector<uint32_t> bits(mask.size(), 0);
    unite(inside.tokens, bits);
    const auto beyond =
        std::partition_point(staying.begin(), staying.end(), [&](const Ticked& t) { return t.ticks <= most; });
    for (auto t = beyond; t != staying.end(); ++t) clear_bit(bits, t->token);
    for (const Ticked& t : inside.ending) clear_bit(bits, t.token);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] |= bits[i];
  }
  for (const Ticked& t : inside.ending)
    if (t.ticks <= most && t.ticks >= config.min_left) set_bit(mask, t.token);
}

// Tokens below a node of the trie, from a configuration that stands at it.
void Machine::allow_below(int32_t node, Config config, Walk& w, std::span<uint32_t> mask) const {
  if (w.levels.empty()) w.levels.emplace_back();
  w.levels[0].assign(1, config);
  walk(node, w, [&](int32_t n, const std::vector<Config>&) {
    for (const int32_t t : trie_->tokens_at(n)) set_bit(mask, t);
  });
}

void Machine::allowed(const Position& position, std::span<uint32_t> mask) const {
  Walk w;
  w.frames = position.frames;
  for (Config config : position.configs) {
    for (bool again = true; again;) {
      const std::shared_ptr<const Inside> in = inside(config.state);
      const int depth = config.stack < 0 ? 0 : w.frames[config.stack].depth;
      if (depth + in->depth > kMostDepth) {  // the limit of depth lies within a token's reach
        allow_below(0, config, w, mask);
        break;
      }
      const bool counts = automaton_.states[config.state].counts;
      if (counts && (config.min_left > 0 || config.max_left != kUnbounded))
        allow_counted(*in, config, mask);
      else
        unite(in->tokens, mask);
      if (config.stack != kBottom) {
        const Config below = {w.frames[config.stack].back, w.frames[config.stack].below};
        for (const Exit& exit : in->exits)
          if (!counts || (exit.ticks >= config.min_left && exit.ticks <= config.max_left))
            allow_below(exit.node, below, w, mask);
      }
      again = pop(config, w.frames);
    }
  }
}

}  // namespace lathe
