#include "text/grammar/expression.h"

#include <algorithm>

namespace lathe {

namespace {

void add_repeat(AutomatonBuilder& builder, int32_t from, const Expression& e, int32_t to, Writing writing) {
  const Expression& part = e.parts.front();
  auto once_more = [&] {
    const int32_t next = builder.add_state();
    add_expression(builder, from, part, next, writing);
    from = next;
  };
  for (int i = 0; i < e.min && !builder.budget().spent(); ++i) once_more();
  if (e.max < 0) {
    const int32_t loop = builder.add_state();
    builder.empty(from, loop);
    add_expression(builder, loop, part, loop, writing);
    builder.empty(loop, to);
    return;
  }
  builder.empty(from, to);
  for (int i = e.min; i < e.max && !builder.budget().spent(); ++i) {
    once_more();
    builder.empty(from, to);
  }
}

}  // namespace

void add_expression(AutomatonBuilder& builder, int32_t from, const Expression& e, int32_t to, Writing writing) {
  using Kind = Expression::Kind;
  if (builder.budget().spent()) return;
  switch (e.kind) {
    case Kind::kEmpty:
      builder.empty(from, to);
      return;
    case Kind::kCharacters:
      add_characters(builder, from, e.characters, to, writing);
      return;
    case Kind::kCall:
      builder.call(from, e.rule, to);
      return;
    case Kind::kRepeat:
      add_repeat(builder, from, e, to, writing);
      return;
    case Kind::kChoice:
      for (const Expression& part : e.parts) add_expression(builder, from, part, to, writing);
      return;
    case Kind::kSequence:
      for (const Expression& part : e.parts) {
        const int32_t next = builder.add_state();
        add_expression(builder, from, part, next, writing);
        from = next;
      }
      builder.empty(from, to);
  }
}

namespace {

constexpr int kFewRepeats = 16;

bool has_fixed_length(const Expression& e) {
  using Kind = Expression::Kind;
  return e.kind == Kind::kEmpty || e.kind == Kind::kCharacters ||
         (e.kind == Kind::kRepeat && e.min == e.max && has_fixed_length(e.parts.front()));
}

bool is_worth_counting(const Expression& e) {
  return e.kind == Expression::Kind::kRepeat && e.parts.front().kind == Expression::Kind::kCharacters &&
         std::max(e.min, e.max) > kFewRepeats;
}

void add_count(AutomatonBuilder& builder, int32_t from, const Expression& e, int32_t to, Writing writing) {
  const int32_t number = builder.add_rule("count");
  const auto rule = builder.rule(number);
  const int32_t counted = builder.add_state();
  for (const int32_t state : {rule.begin, counted})
    add_characters(builder, state, e.parts.front().characters, counted, writing, Automaton::kTick);
  builder.empty(counted, rule.end);
  builder.call(from, number, to, std::max(e.min, 1), e.max < 0 ? kUnbounded : e.max);
  if (e.min == 0) builder.empty(from, to);
}

}  // namespace

void add_counting(AutomatonBuilder& builder, int32_t from, const Expression& e, int32_t to, Writing writing) {
  using Kind = Expression::Kind;
  if (e.kind == Kind::kChoice) {
    for (const Expression& part : e.parts) add_counting(builder, from, part, to, writing);
    return;
  }
  if (is_worth_counting(e)) return add_count(builder, from, e, to, writing);
  if (e.kind != Kind::kSequence) return add_expression(builder, from, e, to, writing);
  bool fixed = true;
  for (const Expression& part : e.parts) {
    const int32_t next = builder.add_state();
    if (fixed && is_worth_counting(part))
      add_count(builder, from, part, next, writing);
    else
      add_expression(builder, from, part, next, writing);
    fixed &= has_fixed_length(part);
    from = next;
  }
  builder.empty(from, to);
}

}  // namespace lathe
