// Token ids -> text. The text is always well-formed UTF-8: each maximal ill-formed part of the
// tokens' bytes becomes one U+FFFD.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace cachalot {

struct DecodeOptions {
  // Leave out tokens flagged special. Control tokens of the chat format are not flagged so and
  // stay.
  bool skip_special = false;
};

// Token by token. What push and finish return, joined, equals decode() of all ids byte for byte.
class Detokenizer {
 public:
  // `tokenizer` outlives the detokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {});

  // The text that this token completes; the start of an unfinished UTF-8 sequence is held back.
  // `id` is an id of the tokenizer.
  std::string push(int32_t id);

  // The end of the output: a sequence still unfinished comes out as one U+FFFD. The detokenizer is
  // then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;  // at most 3 bytes
};

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   DecodeOptions options = {});

}  // namespace cachalot
