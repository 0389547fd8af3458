// Strings and numbers of a schema as automata.
#pragma once

#include <optional>

#include "grammar/automaton.h"
#include "grammar/schema_leaves.h"

namespace cachalot {

// What minLength, maxLength, pattern and format of a leaf say together; absent: nothing. `lengths_
// only`: no pattern and no format is among them. `states`: of all automata on the way. Errors name
// the keyword. `longest`: beyond it maxLength counts as no more.
struct StringConstraint {
  std::optional<Automaton> automaton;
  bool lengths_only = true;
  size_t states = 0;
};
Result<StringConstraint> string_constraint(const SchemaLeaf& leaf, int64_t longest);

// Bounds and multipleOf of a leaf; absent: there are none. `integer`: no fractions.
Result<std::optional<Automaton>> number_constraint(const SchemaLeaf& leaf, bool integer);

// The regular expression of a format that is enforced; nullptr: it says nothing here.
const char* format_pattern(std::string_view format);

}  // namespace cachalot
