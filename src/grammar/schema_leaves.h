// A schema as a choice of plain ones.
//
// $ref and allOf are merged into what stands beside them, anyOf and oneOf become alternatives. What
// remains, a leaf, has only keywords about values. Schemas below (properties, items) stay as they
// are.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "chat/json_value.h"

namespace cachalot {

struct SchemaLeaf {
  Json schema;  // modernised; an empty enum lets nothing through
  std::string pointer;
};

class SchemaLeaves {
 public:
  // `document` outlives this: references name places in it.
  explicit SchemaLeaves(const Json& document) : document_(document) {}

  // Errors name the place: unsupported or malformed keywords, references to nothing or in a circle,
  // alternatives of a oneOf that may hold at once, too many combinations.
  Result<std::vector<SchemaLeaf>> of(const Json& schema, const std::string& pointer);

 private:
  const Json& document_;
  size_t work_ = 0;  // about how many values were copied and compared

  Result<Json> merged(const Json& a, const Json& b, const std::string& pointer);
  Result<Json> flattened(const Json& schema, const std::string& pointer, int depth);
  Status add(Json flat, const std::string& pointer, int depth, std::vector<SchemaLeaf>& leaves);
  Status add_alternatives(const Json& flat, const char* keyword, const std::string& pointer,
                          int depth, std::vector<SchemaLeaf>& leaves);
  // Whether no value written under one leaf satisfies the other; false if that is not known.
  bool never_satisfies(const Json& written, const Json& other, int depth);
  bool apart(const Json& a, const Json& b, int depth);
  bool property_apart(const Json& written, const Json& other, int depth);
};

}  // namespace cachalot
