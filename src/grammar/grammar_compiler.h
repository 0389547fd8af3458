// What a request asks of its answer's form -> a grammar.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/messages.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_mask.h"

namespace cachalot {

// Of the content. `schema` for json_schema, `text` for grammar (llama.cpp's notation) and regex,
// `choices` for choice.
struct Constraint {
  enum Kind { kNone, kJsonObject, kJsonSchema, kGrammar, kRegex, kChoice } kind = kNone;
  Json schema;
  std::string text;
  std::vector<std::string> choices;
};

// Of the calls. With required or named tools the answer is a block of calls. With kAuto, a block is
// constrained if a tool is strict or the content is constrained; the content may also be a block
// then. `parallel` false: one call at most.
struct ToolConstraint {
  ToolChoice choice;
  std::vector<Tool> tools;
  bool parallel = true;
};

class GrammarCompiler {
 public:
  // `vocab_size`: of the model's logits, if larger than the tokenizer's. `tokenizer` outlives the
  // compiler and what it compiles.
  explicit GrammarCompiler(const Tokenizer& tokenizer, int32_t vocab_size = 0);

  // Thread-safe; what was compiled lately is kept. nullptr: nothing is constrained. Errors name the
  // place: "schema: #/properties/a/type: ...", "grammar, line 2, column 5: ...", "regex: column 3:
  // ...", "tool 'f': #/properties/a: ...".
  Result<std::shared_ptr<const CompiledGrammar>> compile(const Constraint& constraint,
                                                         const ToolConstraint& tools = {}) const;

 private:
  static constexpr size_t kKept = 32;
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };
  const Tokenizer& tokenizer_;
  int32_t vocab_size_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<int32_t> free_tokens_;  // control tokens that free text may hold
  mutable std::mutex mutex_;
  mutable std::list<Entry> kept_;  // the latest first

  std::shared_ptr<const CompiledGrammar> find(const std::string& key) const;
};

}  // namespace cachalot
