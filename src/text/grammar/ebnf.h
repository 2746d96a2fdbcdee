#pragma once

#include <string_view>

#include "text/grammar/automaton_builder.h"

namespace lathe {

// A grammar in llama.cpp's GBNF:
//
//   root  ::= item ("," item)*       # the text; every rule is name ::= alternatives
//   item  ::= [a-z]+ | "\"" [^"\n]{0,20} "\"" | .
//
// Names are letters, digits, - and _. Literals and classes know \n \r \t \\ \" \[ \] \xNN \uNNNN \UNNNNNNNN.
// Repetition:
// * + ? {m} {m,} {m,n}. A rule ends with its line, unless a bracket is open or | comes next. Not left recursive.
// Adds its rules to `builder`, the text's first.
Status add_ebnf(AutomatonBuilder& builder, std::string_view grammar, int most_nesting);

}  // namespace lathe
