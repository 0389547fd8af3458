// A pattern of tokenizer.json, written for Oniguruma (Ruby syntax, as Hugging Face runs it), as a
// PCRE2 pattern of the same meaning.
//
// Where the two differ the pattern is rewritten (\s is Unicode White_Space; \p{L}, \p{M}, \p{N},
// \p{P}, \p{S} are the tables of unicode_classes.h, not those of the installed PCRE2; \uHHHH) or
// refused (\w, \b, ^, $, nested classes, &&, groups that repeat ...). What is left cannot backtrack
// exponentially.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace cachalot {

// Error: names the construct and its position.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace cachalot
