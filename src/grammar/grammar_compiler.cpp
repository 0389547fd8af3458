#include "grammar/grammar_compiler.h"

#include <algorithm>

#include "chat/control_tokens.h"
#include "grammar/gbnf.h"
#include "grammar/json_rules.h"
#include "grammar/regex_pattern.h"
#include "grammar/schema_compiler.h"
#include "grammar/tool_grammar.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

constexpr size_t kLongestSource = size_t{1} << 20;  // bytes of a schema, grammar or expression

// What the parser of answers takes for a block of calls.
const std::vector<std::string>& block_openers() {
  static const std::vector<std::string> texts = {fmt::format("<{}", control::kMarkup), "<|DSML|"};
  return texts;
}

// A parser of answers takes these out of the content, wherever they stand.
std::vector<std::string> forbidden_in_content(bool tools) {
  std::vector<std::string> texts = {std::string(control::kEndThink)};
  if (tools) texts.insert(texts.end(), block_openers().begin(), block_openers().end());
  return texts;
}

std::vector<Tool> chosen_tools(const ToolConstraint& constraint) {
  if (constraint.choice.kind == ToolChoice::kNone) return {};
  std::vector<Tool> result = constraint.tools;
  std::erase_if(result, [&](const Tool& tool) {
    const std::string& name = constraint.choice.name;
    return !name.empty() && tool.qualified_name != name && tool.name != name;
  });
  return result;
}

// Tokens that shape a conversation stay out of free text, those that mark places in pictures may
// come.
std::vector<int32_t> free_tokens(const Tokenizer& tokenizer) {
  static constexpr std::string_view kShaping[] = {
      control::kBegin,     control::kEnd,   control::kSystem,   control::kUser,
      control::kAssistant, control::kThink, control::kEndThink, control::kLatestReminder};
  std::vector<int32_t> result;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_added(id) &&
        std::ranges::find(kShaping, tokenizer.token_name(id)) == std::end(kShaping))
      result.push_back(id);
  return result;
}

std::string key_of(const Constraint& constraint, const ToolConstraint& tools) {
  std::string key = fmt::format("{}\n{}\n{}\n", static_cast<int>(constraint.kind),
                                static_cast<int>(tools.choice.kind), tools.parallel);
  const auto add = [&key](const std::string& part) {
    key += fmt::format("{}:{}\n", part.size(), part);
  };
  if (constraint.kind == Constraint::kJsonSchema) add(constraint.schema.dump());
  add(constraint.text);
  for (const std::string& choice : constraint.choices) add(choice);
  for (const Tool& tool : chosen_tools(tools)) {
    add(tool.qualified_name);
    add(tool.function.dump());
  }
  return key;
}

// One compilation.
class Compilation {
 public:
  Compilation(const Constraint& constraint, const ToolConstraint& tools, const Tokenizer& tokenizer,
              const std::vector<int32_t>& free_tokens)
      : constraint_(constraint),
        choice_(tools.choice),
        parallel_(tools.parallel),
        tools_(chosen_tools(tools)),
        tokenizer_(tokenizer),
        free_tokens_(free_tokens),
        json_(builder_, forbidden_in_content(!tools_.empty())),
        value_json_(builder_, forbidden_in_values()) {}

  Result<std::pair<Grammar, CompiledGrammar::Starts>> run() {
    CompiledGrammar::Starts starts;
    starts.content = builder_.add_rule(title());
    const int32_t start = builder_.start(starts.content), end = builder_.add_node();
    builder_.set_final(end);
    const bool required = choice_.kind == ToolChoice::kRequired;
    if (required && tools_.empty()) {
      if (choice_.name.empty()) return fail("tool_choice: required, but there are no tools");
      return fail("tool_choice: there is no tool \"{}\"", choice_.name);
    }
    if (!required && constraint_.kind != Constraint::kNone) CACHALOT_OK(add_content(start, end));
    if (!tools_.empty()) {
      ToolGrammar grammar(value_json_, tokenizer_);
      CACHALOT_TRY(const ToolGrammar::Block block, grammar.add(tools_, parallel_));
      starts.calls = block.opened;
      int32_t before = start;
      if (!required && constraint_.kind == Constraint::kNone) {
        before = add_free_text(start);
        builder_.add_empty(before, end);
      }
      builder_.add_call(before, block.whole, end);
    }
    starts.reasoning = add_reasoning(starts.content);
    std::vector<int32_t> roots = {starts.content, starts.reasoning};
    if (starts.calls) roots.push_back(*starts.calls);
    CACHALOT_TRY(Grammar grammar, builder_.finish(roots));
    return std::pair(std::move(grammar), starts);
  }

 private:
  const Constraint& constraint_;
  const ToolChoice& choice_;
  bool parallel_;
  std::vector<Tool> tools_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& free_tokens_;
  GrammarBuilder builder_;
  JsonRules json_, value_json_;

  const char* title() const {
    switch (constraint_.kind) {
      case Constraint::kJsonSchema:
        return "schema";
      case Constraint::kGrammar:
        return "grammar";
      case Constraint::kRegex:
        return "regex";
      case Constraint::kChoice:
        return "choice";
      default:
        return "the answer";
    }
  }

  Status add_content(int32_t from, int32_t to) {
    switch (constraint_.kind) {
      case Constraint::kNone:
        return {};
      case Constraint::kJsonObject:
        builder_.add_call(from, json_.object(), to);
        return {};
      case Constraint::kJsonSchema: {
        SchemaCompiler compiler(json_, constraint_.schema);
        builder_.add_call(from, compiler.rule(constraint_.schema, "#"), to);
        const Status status = compiler.finish();
        return status ? status : fail(status.error().in("schema"));
      }
      case Constraint::kGrammar: {
        CACHALOT_TRY(const int32_t root, add_gbnf(json_.texts(), builder_, constraint_.text));
        builder_.add_call(from, root, to);
        return {};
      }
      case Constraint::kRegex:
        return add_regex(from, to);
      case Constraint::kChoice:
        return add_choices(from, to);
    }
    return {};
  }

  Status add_regex(int32_t from, int32_t to) {
    if (valid_utf8_prefix(constraint_.text) < constraint_.text.size())
      return fail("regex: no valid UTF-8");
    const auto automaton = parse_regex(constraint_.text, Anchoring::kWhole);
    if (!automaton) return fail(automaton.error().in("regex"));
    builder_.add_empty(json_.texts().add(from, *automaton, Spelling::kRaw), to);
    return {};
  }

  Status add_choices(int32_t from, int32_t to) {
    if (constraint_.choices.empty()) return fail("choice: expected at least one text");
    for (const std::string& text : constraint_.choices)
      if (valid_utf8_prefix(text) < text.size()) return fail("choice: no valid UTF-8");
    builder_.add_empty(json_.texts().add(from, one_of(constraint_.choices), Spelling::kRaw), to);
    return {};
  }

  int32_t add_free_text(int32_t from) {
    const int32_t loop = builder_.add_node();
    builder_.add_empty(from, loop);
    const int32_t end = json_.texts().add_bytes_without(loop, json_.forbidden());
    std::vector<int32_t> tokens = free_tokens_;
    if (const auto marker = tokenizer_.id_of(control::kMarkup); marker && !tools_.empty())
      std::erase(tokens, *marker);
    builder_.add_tokens(end, std::move(tokens), loop);
    return end;
  }

  int32_t add_reasoning(int32_t content) {
    const int32_t rule = builder_.add_rule("reasoning");
    int32_t at = add_free_text(builder_.start(rule));
    const auto end_think = tokenizer_.id_of(control::kEndThink);
    at = end_think ? builder_.token(at, *end_think) : builder_.text(at, control::kEndThink);
    builder_.set_final(builder_.call(at, content));
    return rule;
  }
};

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int32_t vocab_size)
    : tokenizer_(tokenizer),
      vocab_size_(std::max(vocab_size, tokenizer.vocab_size())),
      trie_(std::make_shared<const TokenTrie>(tokenizer)),
      free_tokens_(free_tokens(tokenizer)) {}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find(kept_, key, &Entry::key);
  if (entry == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, entry);
  return entry->grammar;
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::compile(
    const Constraint& constraint, const ToolConstraint& tools) const {
  const std::vector<Tool> callable = chosen_tools(tools);
  if (constraint.kind == Constraint::kNone && tools.choice.kind != ToolChoice::kRequired &&
      std::ranges::none_of(callable, is_strict))
    return std::shared_ptr<const CompiledGrammar>();
  std::string key = key_of(constraint, tools);
  if (key.size() > kLongestSource)
    return fail("the schema, grammar or tools have {} bytes, more than {}", key.size(),
                kLongestSource);
  if (auto known = find(key)) return known;
  CACHALOT_TRY(auto compiled, Compilation(constraint, tools, tokenizer_, free_tokens_).run());
  auto grammar = std::make_shared<const CompiledGrammar>(std::move(compiled.first), compiled.second,
                                                         tokenizer_, trie_, vocab_size_);
  const std::lock_guard lock(mutex_);
  kept_.push_front({std::move(key), grammar});
  if (kept_.size() > kKept) kept_.pop_back();
  return grammar;
}

}  // namespace cachalot
