// What calls may look like: the block of calls for given tools, parameters by their schemas.
//
//   \n\n<｜DSML｜ calls>\n
//   <｜DSML｜ invoke name="NAME">\n
//   <｜DSML｜ parameter name="KEY" string="true">text</｜DSML｜ parameter>\n ...
//   </｜DSML｜ invoke>\n ...
//   </｜DSML｜ calls>
//
// The marker is the vocabulary's token. Properties stand in the schema's order and at most once;
// strings are raw text without a closing tag, all else is JSON. Parameters that the schema does not
// name are not written, unless it names none and the tool is not strict: then any may come, and
// nothing keeps a name from coming twice.
#pragma once

#include <vector>

#include "chat/messages.h"
#include "grammar/json_rules.h"
#include "grammar/schema_leaves.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

// Spellings that a parser of answers takes for a marker inside of a value.
const std::vector<std::string>& forbidden_in_values();

class ToolGrammar {
 public:
  // `rules` forbids forbidden_in_values(). All outlive the object.
  ToolGrammar(JsonRules& rules, const Tokenizer& tokenizer)
      : rules_(rules), builder_(rules.builder()), tokenizer_(tokenizer) {}

  // Two rules: what stands behind the block's opening tag, and the block with the tag and the two
  // line breaks in front of it. Errors name the tool and the place in its schema. Where the schema
  // of a tool that is not strict is not supported, any value may stand.
  struct Block {
    int32_t opened, whole;
  };
  Result<Block> add(const std::vector<Tool>& tools, bool parallel);

 private:
  JsonRules& rules_;
  GrammarBuilder& builder_;
  const Tokenizer& tokenizer_;

  int32_t tag(int32_t from, std::string_view before, std::string_view after);
  Result<int32_t> invoke(const Tool& tool);
  Status add_parameters(const SchemaLeaf& leaf, const Json& document, bool strict, int32_t from,
                        int32_t to);
  Result<int32_t> parameter(const std::string& key, const Json& schema, const std::string& where,
                            const Json& document, bool strict);
  Status add_value(const Json& schema, const std::string& where, const Json& document, int32_t kind,
                   int32_t to);
  void add_any_value(int32_t kind, int32_t to);
  void add_any_parameters(int32_t from, int32_t to);
};

// Whether the function asks for `"strict": true`.
bool is_strict(const Tool& tool);

}  // namespace cachalot
