#pragma once

#include <vector>

#include "text/grammar/character_set.h"

namespace lathe {

// A regular expression, or the right side of a rule.
struct Expression {
  enum class Kind { kEmpty, kCharacters, kSequence, kChoice, kRepeat, kCall };
  Kind kind = Kind::kEmpty;
  CharacterSet characters;
  std::vector<Expression> parts;  // of kRepeat: one
  int min = 0, max = -1;          // of kRepeat; -1: without end
  int rule = -1;                  // of kCall

  static Expression of(CharacterSet set) {
    Expression e;
    e.kind = Kind::kCharacters;
    e.characters = std::move(set);
    return e;
  }
  static Expression repeat(Expression part, int min, int max) {
    Expression e;
    e.kind = Kind::kRepeat;
    e.parts.push_back(std::move(part));
    e.min = min;
    e.max = max;
    return e;
  }
  static Expression many(Kind kind, std::vector<Expression> parts) {
    if (parts.size() == 1) return std::move(parts.front());
    Expression e;
    if (kind == Kind::kChoice || !parts.empty()) e.kind = kind;
    e.parts = std::move(parts);
    return e;
  }
};

// Adds the expression's texts between two states, repetitions as so many states.
void add_expression(AutomatonBuilder& builder, int32_t from, const Expression& expression, int32_t to, Writing writing);

// The same, but long repetitions of one character are counted, by a rule that is called: one walk over the vocabulary
// then serves all their states. Only where it is clear at which character the counting began: behind parts of fixed
// length, outside of other repetitions.
void add_counting(AutomatonBuilder& builder, int32_t from, const Expression& expression, int32_t to, Writing writing);

}  // namespace lathe
