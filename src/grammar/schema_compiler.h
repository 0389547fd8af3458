// JSON Schema -> rules of a grammar whose texts are documents that the schema accepts.
//
// Properties stand in the schema's order. What a schema leaves open is narrowed where people expect
// it: a schema that names properties has no others unless additionalProperties says so; a tuple
// (prefixItems) is complete and has no further items unless minItems, maxItems or items say so;
// without `type`, a schema is about the types that its keywords speak of. docs/structured_output.md
// lists the keywords.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "grammar/json_rules.h"
#include "grammar/schema_leaves.h"
#include "grammar/schema_values.h"

namespace cachalot {

class SchemaCompiler {
 public:
  // Both outlive the compiler; `document` is what references are resolved in.
  SchemaCompiler(JsonRules& rules, const Json& document)
      : rules_(rules), builder_(rules.builder()), leaves_(document) {}

  // The rule of a schema at a place of the document. It is complete after finish().
  int32_t rule(const Json& schema, const std::string& pointer);

  // A value that is written as a parameter of a call: as raw text if it is a string, else as JSON.
  // `from` is where the kind is told: see tool_grammar.cpp.
  struct Split {
    std::vector<SchemaLeaf> strings, others;
  };
  Result<Split> split(const Json& schema, const std::string& pointer);
  // Raw texts of the leaf's strings, without the forbidden ones.
  Result<int32_t> add_raw(const SchemaLeaf& leaf, int32_t from);
  Status add_leaf(const SchemaLeaf& leaf, int32_t from, int32_t to);

  // Errors name the place in the document.
  Status finish();

 private:
  struct Open {
    int32_t rule;
    Json schema;
    std::string pointer;
  };
  JsonRules& rules_;
  GrammarBuilder& builder_;
  SchemaLeaves leaves_;
  std::map<std::string, int32_t> known_;  // by the schema's text
  std::vector<Open> open_;
  size_t text_bytes_ = 0;

  Status add_values(const SchemaLeaf& leaf, const Json& values, int32_t from, int32_t to);
  Result<StringConstraint> strings_of(const SchemaLeaf& leaf);
  Result<std::optional<Automaton>> numbers_of(const SchemaLeaf& leaf, bool integer);
  // Those of a leaf's enum that its other keywords let through.
  Result<Json::Array> values_of(const SchemaLeaf& leaf, const Json::Array& values);
  Status add_string(const SchemaLeaf& leaf, int32_t from, int32_t to);
  Status add_number(const SchemaLeaf& leaf, bool integer, int32_t from, int32_t to);
  Status add_object(const SchemaLeaf& leaf, int32_t from, int32_t to);
  Status add_array(const SchemaLeaf& leaf, int32_t from, int32_t to);
  int32_t comma(int32_t from);
};

}  // namespace cachalot
