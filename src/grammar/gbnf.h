// Grammars in llama.cpp's notation:
//   root  ::= "yes" | "no" reason?
//   reason ::= ", because " [^\n.]{1,80} "."   # a comment
// A rule ends with its line, unless a parenthesis is open or `|` or `::=` stands last. Literals and
// classes know \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH; `.` is any character; * + ? {m}
// {m,} {m,n} follow a literal, class, name or group.
#pragma once

#include <string_view>

#include "grammar/text_rules.h"

namespace cachalot {

// Returns the rule of `root`. Errors name line and column: what was expected, names without a rule,
// rules given twice, no root.
Result<int32_t> add_gbnf(TextRules& texts, GrammarBuilder& builder, std::string_view grammar);

}  // namespace cachalot
