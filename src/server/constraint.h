// What an answer's content must be, beside free text.
#pragma once

#include <string>
#include <vector>

#include "chat/json_value.h"

namespace cachalot {

struct Constraint {
  enum Kind { none, json_object, json_schema, grammar, regex, choice } kind = none;
  Json schema;                       // json_schema
  std::string text;                  // grammar, regex
  std::vector<std::string> choices;  // choice
};

}  // namespace cachalot
