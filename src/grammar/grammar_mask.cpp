#include "grammar/grammar_mask.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cachalot {
namespace {

// A space beyond this is left behind before the next state is asked for.
constexpr size_t kLargeSpace = size_t{24} << 20;

using SharedSpace = CompiledGrammar::SharedSpace;

class GrammarMask final : public TokenMask {
 public:
  GrammarMask(std::shared_ptr<const CompiledGrammar> grammar, AnswerStart start,
              std::span<const int32_t> end_tokens, MaskedEnd end)
      : grammar_(std::move(grammar)),
        end_tokens_(end_tokens.begin(), end_tokens.end()),
        end_(end),
        words_(static_cast<size_t>(grammar_->vocab_size() + 63) / 64),
        space_(grammar_->space()) {
    const std::lock_guard lock(space_->mutex);
    state_ = space_->states.start(grammar_->start_rule(start));
  }

  std::span<const uint64_t> allowed(std::span<const int32_t> drafts) override {
    if (state_ == StateSpace::kDead) return {};
    keep_up();
    bool accepts = false;
    {
      const std::lock_guard lock(space_->mutex);
      int32_t state = state_;
      for (const int32_t draft : drafts) {
        state = is_end(draft) ? StateSpace::kDead : after(space_->states, state, draft);
        if (state == StateSpace::kDead) return {};
      }
      accepts = space_->states.accepts(state);
      space_->states.mask(state, words_);
    }
    let_end(false);
    const auto nothing_else = [&] {
      return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
    };
    if (accepts && (end_ == MaskedEnd::complete || nothing_else())) let_end(true);
    return words_;
  }

  void accept(int32_t token) override {
    if (state_ == StateSpace::kDead) return;
    const std::lock_guard lock(space_->mutex);
    // Behind an end token, or one the mask did not let through, nothing is known.
    state_ = is_end(token) ? StateSpace::kDead : after(space_->states, state_, token);
  }

 private:
  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<int32_t> end_tokens_;
  MaskedEnd end_;
  std::vector<uint64_t> words_;
  std::shared_ptr<SharedSpace> space_;
  int32_t state_ = StateSpace::kDead;

  void let_end(bool may) {
    for (const int32_t token : end_tokens_) {
      if (token < 0 || token >= grammar_->vocab_size()) continue;
      const uint64_t bit = uint64_t{1} << token % 64;
      if (may) {
        words_[token / 64] |= bit;
      } else {
        words_[token / 64] &= ~bit;
      }
    }
  }

  bool is_end(int32_t token) const {
    return std::ranges::find(end_tokens_, token) != end_tokens_.end();
  }

  int32_t after(StateSpace& states, int32_t state, int32_t token) const {
    const Tokenizer& tokenizer = grammar_->tokenizer();
    if (token < 0 || token >= tokenizer.vocab_size()) return StateSpace::kDead;
    if (tokenizer.is_added(token)) return states.after_control_token(state, token);
    for (const char byte : tokenizer.token_bytes(token)) {
      state = states.after_byte(state, static_cast<uint8_t>(byte));
      if (state == StateSpace::kDead) break;
    }
    return state;
  }

  // To the space the others use, or to a new one if this has grown too large.
  void keep_up() {
    auto current = grammar_->space();
    size_t bytes = 0;
    {
      const std::lock_guard lock(current->mutex);
      bytes = current->states.bytes();
    }
    if (bytes > kLargeSpace) current = grammar_->space_after(current);
    if (current != space_) move_to(std::move(current));
  }

  void move_to(std::shared_ptr<SharedSpace> next) {
    StateSpace::Configuration configuration;
    {
      const std::lock_guard lock(space_->mutex);
      configuration = space_->states.configuration(state_);
    }
    space_ = std::move(next);
    const std::lock_guard lock(space_->mutex);
    state_ = space_->states.state_of(configuration);
  }
};

}  // namespace

std::unique_ptr<TokenMask> make_token_mask(std::shared_ptr<const CompiledGrammar> grammar,
                                           AnswerStart start, std::span<const int32_t> end_tokens,
                                           MaskedEnd end) {
  if (!grammar) return nullptr;
  return std::make_unique<GrammarMask>(std::move(grammar), start, end_tokens, end);
}

}  // namespace cachalot
