// What a request asks of its answer's form: schemas, grammars, expressions, choices, tools. It is
// refused with a message, or an answer can be written: from every state some token goes on.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "grammar/grammar_compiler.h"

namespace {

using namespace cachalot;

const Tokenizer& tokenizer() {
  static const Tokenizer nano = *Tokenizer::load(CACHALOT_SOURCE_DIR "/models/nano");
  return nano;
}

// Follows the grammar for some tokens; `choices` says which.
void walk(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view choices) {
  const int32_t end = *tokenizer().eos_id();
  const auto mask = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
  for (size_t i = 0; i < std::min<size_t>(choices.size(), 24); ++i) {
    const auto allowed = mask->allowed({});
    std::vector<int32_t> tokens;
    for (int32_t id = 0; id < tokenizer().vocab_size(); ++id)
      if ((allowed[id / 64] >> (id % 64) & 1) != 0) tokens.push_back(id);
    CACHALOT_CHECK(!tokens.empty(), "no token may follow");
    const int32_t token = tokens[static_cast<uint8_t>(choices[i]) * tokens.size() / 256];
    if (token == end) return;
    mask->accept(token);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const GrammarCompiler compiler(tokenizer());
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  Constraint constraint;
  ToolConstraint tools;
  constraint.kind = static_cast<Constraint::Kind>(data[0] % 6);
  constraint.text = text;
  constraint.choices = {std::string(text)};
  if (constraint.kind == Constraint::kJsonSchema || constraint.kind == Constraint::kNone) {
    const auto json = parse_json(text);
    if (!json) return 0;
    constraint.schema = *json;
    if (constraint.kind == Constraint::kNone) {
      auto parsed = parse_tools(*json, "tools");
      if (!parsed) return 0;
      tools = {.choice = {ToolChoice::kRequired, ""}, .tools = std::move(*parsed)};
    }
  }
  const auto grammar = compiler.compile(constraint, tools);
  CACHALOT_CHECK(grammar || !grammar.error().message.empty());
  if (grammar && *grammar) walk(*grammar, text);
  return 0;
}
