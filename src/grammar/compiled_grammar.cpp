#include "grammar/compiled_grammar.h"

#include <utility>

namespace cachalot {

CompiledGrammar::CompiledGrammar(Grammar grammar, Starts starts, const Tokenizer& tokenizer,
                                 std::shared_ptr<const TokenTrie> trie, int32_t vocab_size)
    : grammar_(std::move(grammar)),
      starts_(starts),
      tokenizer_(tokenizer),
      trie_(std::move(trie)),
      vocab_size_(vocab_size),
      space_(new_space()) {}

int32_t CompiledGrammar::start_rule(AnswerStart start) const {
  if (start == AnswerStart::kReasoning) return starts_.reasoning;
  if (start == AnswerStart::kToolCalls && starts_.calls) return *starts_.calls;
  return starts_.content;
}

std::shared_ptr<CompiledGrammar::SharedSpace> CompiledGrammar::space() const {
  const std::lock_guard lock(mutex_);
  return space_;
}

std::shared_ptr<CompiledGrammar::SharedSpace> CompiledGrammar::space_after(
    const std::shared_ptr<SharedSpace>& old) const {
  const std::lock_guard lock(mutex_);
  if (space_ == old) space_ = new_space();
  return space_;
}

std::shared_ptr<CompiledGrammar::SharedSpace> CompiledGrammar::new_space() const {
  return std::make_shared<SharedSpace>(grammar_, *trie_, vocab_size_);
}

}  // namespace cachalot
