// Regular expressions as ECMAScript writes them, as far as they describe regular languages:
// literals and escapes, ., classes with \d \w \s and their opposites, groups (named ones too), |, *
// + ? and {m,n} (lazy or not), ^ and $. Refused: backreferences, lookaround, \b, \p.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/automaton.h"

namespace cachalot {

enum class Anchoring {
  kWhole,     // the expression describes the whole text
  kAnywhere,  // ... a part of it, unless ^ or $ say otherwise
};

// `pattern` is valid UTF-8. Errors name the column (from 1, in characters).
Result<Automaton> parse_regex(std::string_view pattern, Anchoring anchoring);

}  // namespace cachalot
