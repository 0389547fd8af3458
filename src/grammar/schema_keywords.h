// What a JSON Schema says, before it becomes a grammar: references, keywords, schemas that hold at
// once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/json_value.h"

namespace cachalot {

// A schema and where it stands in the document ("#/properties/a").
struct PlacedSchema {
  const Json* schema = nullptr;
  std::string pointer;
};

// The schema a $ref names: "#", or "#" and a JSON pointer. Errors: anything else, nothing there.
Result<PlacedSchema> resolve_reference(const Json& document, const Json& reference,
                                       const std::string& where);

std::string pointer_below(const std::string& pointer, std::string_view key);

// Errors: a keyword that is known and not supported, a value of the wrong kind.
Status check_keywords(const Json& schema, const std::string& pointer);

// The schema without what says nothing about values (title, description, $defs, ...), in today's
// words: `const` as `enum`, `nullable` as a type, arrays of items as prefixItems, `pattern`,
// `format` and `multipleOf` as arrays.
Json modernised(const Json& schema);

// Both schemas hold. Neither has $ref or allOf itself, and both are modernised.
Json both(const Json& a, const Json& b);

// Names of the JSON types a modernised schema lets through, of null, boolean, integer, number,
// string, array, object; number includes integer. Without `type`, what the other keywords speak of.
std::vector<std::string> types_of(const Json& schema);

// Equal as JSON values: 1 and 1.0 are, the order of members does not count.
bool equal_values(const Json& a, const Json& b);

// Whether the value is of one of the types.
bool has_type(const Json& value, const std::vector<std::string>& types);

}  // namespace cachalot
