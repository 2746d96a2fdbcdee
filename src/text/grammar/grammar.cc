#include "text/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/grammar/ebnf.h"
#include "text/grammar/machine.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_check.h"
#include "text/grammar/tool_calls.h"

namespace lathe {

namespace {

class CompiledGrammar final : public Grammar {
 public:
  CompiledGrammar(Automaton automaton, std::shared_ptr<const TokenTrie> trie)
      : machine(std::move(automaton), std::move(trie)) {}
  int64_t bytes() const override { return machine.bytes(); }
  Machine machine;
};

using Kind = GrammarSource::Kind;

Status add_choices(AutomatonBuilder& b, const GrammarSource& source, const GrammarLimits& limits) {
  if (source.choices.empty()) return invalid("choice: an empty list");
  if (source.choices.size() > static_cast<size_t>(limits.enum_values))
    return invalid("choice: more than {} texts", limits.enum_values);
  size_t bytes = 0;
  const auto rule = b.rule(b.add_rule("text"));
  for (const std::string& text : source.choices) {
    bytes += text.size();
    if (bytes > static_cast<size_t>(limits.schema_bytes))
      return invalid("choice: more than {} bytes", limits.schema_bytes);
    b.text(rule.begin, text, rule.end);
  }
  return Status::ok();
}

Status add_regex(AutomatonBuilder& b, const GrammarSource& source, const GrammarLimits& limits) {
  if (source.text.size() > static_cast<size_t>(limits.pattern_bytes))
    return invalid("regex: longer than {} bytes", limits.pattern_bytes);
  LATHE_ASSIGN(const Expression e, parse_regex(source.text, RegexMatch::kWhole));
  const auto rule = b.rule(b.add_rule("text"));
  add_counting(b, rule.begin, e, rule.end, Writing::kPlain);
  return Status::ok();
}

Status add_json(AutomatonBuilder& b, const GrammarSource& source, const GrammarLimits& limits) {
  const auto rule = b.rule(b.add_rule("text"));
  JsonRules json(b);
  if (source.kind == Kind::kJsonObject) {
    b.call(rule.begin, json.object(), rule.end);
    return Status::ok();
  }
  LATHE_ASSIGN(const nlohmann::ordered_json schema, read_schema(source.text, limits));
  LATHE_ASSIGN(const int32_t root, SchemaRules(b, json, schema).add(schema, Writing::kJsonString));
  b.call(rule.begin, root, rule.end);
  return Status::ok();
}

Status add_rules(AutomatonBuilder& b, const GrammarSource& source, const Tokenizer& tokenizer,
                 const GrammarLimits& limits);

// The text, or calls.
Status add_either(AutomatonBuilder& b, GrammarSource source, const Tokenizer& tokenizer, const GrammarLimits& limits) {
  GrammarSource calls{.kind = Kind::kToolCalls, .text = std::exchange(source.tools, ""), .choices = {}};
  calls.parallel = source.parallel;
  const int32_t either = b.add_rule("text");
  for (const GrammarSource* one : {&source, &calls}) {
    const int32_t first = b.rules();
    LATHE_RETURN_IF_ERROR(add_rules(b, *one, tokenizer, limits));
    b.call(b.rule(either).begin, first, b.rule(either).end);
  }
  return Status::ok();
}

Status add_rules(AutomatonBuilder& b, const GrammarSource& source, const Tokenizer& tokenizer,
                 const GrammarLimits& limits) {
  if (!source.tools.empty()) return add_either(b, source, tokenizer, limits);
  switch (source.kind) {
    case Kind::kJsonObject:
    case Kind::kJsonSchema:
      return add_json(b, source, limits);
    case Kind::kRegex:
      return add_regex(b, source, limits);
    case Kind::kChoice:
      return add_choices(b, source, limits);
    case Kind::kEbnf:
      if (source.text.size() > static_cast<size_t>(limits.grammar_bytes))
        return invalid("grammar: longer than {} bytes", limits.grammar_bytes);
      return add_ebnf(b, source.text, limits.grammar_nesting);
    case Kind::kToolCalls:
      if (source.text.size() > static_cast<size_t>(limits.schema_bytes) * 4)
        return invalid("tools: longer than {} bytes", limits.schema_bytes * 4);
      return add_tool_calls(b, tokenizer.vocabulary(), source.text, source.choices, source.parallel, limits);
  }
  return internal("a kind of grammar that isn't known");
}

const Machine& machine_of(const Grammar& grammar) { return static_cast<const CompiledGrammar&>(grammar).machine; }

}  // namespace

Result<std::shared_ptr<const Grammar>> Grammar::compile(const GrammarSource& source, const Tokenizer& tokenizer,
                                                        const GrammarLimits& limits) {
  return compile(source, tokenizer, std::make_shared<const TokenTrie>(tokenizer.vocabulary()), limits);
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(const GrammarSource& source, const Tokenizer& tokenizer,
                                                        std::shared_ptr<const TokenTrie> trie,
                                                        const GrammarLimits& limits) {
  Budget budget(limits.seconds, limits.bytes);
  AutomatonBuilder builder(budget);
  LATHE_RETURN_IF_ERROR(add_rules(builder, source, tokenizer, limits));
  LATHE_ASSIGN(Automaton automaton, builder.build());
  return std::shared_ptr<const Grammar>(std::make_shared<const CompiledGrammar>(std::move(automaton), std::move(trie)));
}

struct GrammarState::State {
  std::shared_ptr<const Grammar> grammar;
  Position position;
};

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar) {
  LATHE_CHECK(grammar != nullptr);
  Position begin = dynamic_cast<const CompiledGrammar&>(*grammar).machine.begin();
  state_ = std::make_unique<State>(State{std::move(grammar), std::move(begin)});
}
GrammarState::GrammarState(const GrammarState& other) : state_(std::make_unique<State>(*other.state_)) {}
GrammarState& GrammarState::operator=(const GrammarState& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}
GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState& GrammarState::operator=(GrammarState&&) noexcept = default;
GrammarState::~GrammarState() = default;

bool GrammarState::allowed(std::span<const int32_t> ends, std::span<uint32_t> mask) const {
  std::fill(mask.begin(), mask.end(), 0u);
  machine_of(*state_->grammar).allowed(state_->position, mask);
  if (may_end())
    for (const int32_t id : ends)
      if (id >= 0 && static_cast<size_t>(id / 32) < mask.size()) mask[id / 32] |= uint32_t{1} << (id % 32);
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

bool GrammarState::advance(int32_t token) { return machine_of(*state_->grammar).advance(state_->position, token); }
bool GrammarState::may_end() const { return machine_of(*state_->grammar).may_end(state_->position); }
bool GrammarState::must_end() const { return may_end() && !machine_of(*state_->grammar).may_go_on(state_->position); }

}  // namespace lathe
