// A grammar ready to be followed, with the memory of states that all answers under it share.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "chat/render.h"
#include "grammar/grammar.h"
#include "grammar/state_space.h"
#include "grammar/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

class CompiledGrammar {
 public:
  // The rules an answer may start with.
  struct Starts {
    int32_t content = 0;           // what is constrained comes at once
    int32_t reasoning = 0;         // reasoning and </think> come before it
    std::optional<int32_t> calls;  // the prompt has opened the block of calls
  };
  // States and their masks, used under `mutex`. Who holds a number of a state holds its space.
  struct SharedSpace {
    SharedSpace(const Grammar& grammar, const TokenTrie& trie, int32_t vocab_size)
        : states(grammar, trie, vocab_size) {}
    std::mutex mutex;
    StateSpace states;
  };

  // `tokenizer` outlives the grammar.
  CompiledGrammar(Grammar grammar, Starts starts, const Tokenizer& tokenizer,
                  std::shared_ptr<const TokenTrie> trie, int32_t vocab_size);

  int32_t vocab_size() const { return vocab_size_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  int32_t start_rule(AnswerStart start) const;

  // The space in use. One that has grown too large is left to those who still hold it.
  std::shared_ptr<SharedSpace> space() const;
  // A new space instead of `old`, if that is still in use.
  std::shared_ptr<SharedSpace> space_after(const std::shared_ptr<SharedSpace>& old) const;

 private:
  std::shared_ptr<SharedSpace> new_space() const;

  Grammar grammar_;
  Starts starts_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  int32_t vocab_size_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<SharedSpace> space_;
};

}  // namespace cachalot
