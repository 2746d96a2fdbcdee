#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expression.h"

namespace lathe {

enum class RegexMatch {
  kWhole,      // the whole text matches
  kSomewhere,  // some part of it does, as JSON Schema's "pattern" means it
};

// A pattern in RE2's syntax: literals, classes, \d \w \s \pL \p{Lu} and their opposites, [[:alpha:]], groups (named or
// not), | * + ? {m,n} (at most 1000), flags i and s, ^ and $ at the ends of the pattern's outermost alternatives.
// \uXXXX is understood, too. An error for what RE2 has not (look around, references to groups) and for what can't be a
// mask or isn't here: \b, scripts, flags m and U, anchors elsewhere. Flag i knows the letters A to Z.
Result<Expression> parse_regex(std::string_view pattern, RegexMatch match);

}  // namespace lathe
