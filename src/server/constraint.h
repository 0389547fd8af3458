// What an answer's content must be, beside free text.
#pragma once

#include <string>
#include <vector>

#include "chat/json_value.h"

namespace cachalot {

// `schema` for json_schema, `text` for grammar and regex, `choices` for choice.
struct Constraint {
  enum Kind { kNone, kJsonObject, kJsonSchema, kGrammar, kRegex, kChoice } kind = kNone;
  Json schema;
  std::string text;
  std::vector<std::string> choices;
};

}  // namespace cachalot
