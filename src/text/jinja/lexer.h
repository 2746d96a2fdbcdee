#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace lathe::jinja {

struct Token {
  enum class Kind { kData, kBlockBegin, kBlockEnd, kPrintBegin, kPrintEnd, kName, kOperator, kConstant, kEnd };
  Kind kind;
  int line;
  std::string text;  // of data, names and operators
  Value value;       // of constants: text, int64 or double
};

// Failure of a template that isn't well formed, at a line.
struct SyntaxFailure {
  std::string message;
  int line;
};

// Cuts a template as Jinja does with trim_blocks and lstrip_blocks on, which is what chat templates are written for:
// the newline behind a block goes, so does white space in front of one on its line; `-` strips, `+` keeps. One newline
// at the end of the template goes, too. Valid UTF-8 in.
std::vector<Token> lex(std::string_view source);

}  // namespace lathe::jinja
