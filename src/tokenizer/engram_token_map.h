// The engram token map: token id -> compressed class, so that spellings of one word that differ in
// case, accents or blanks share their n-gram rows.
//
// Key of a token: its text under NFKC, NFD, without characters of general category M, lowercased
// character by character, blanks (space, tab, CR, LF) collapsed, stripped; a lone blank stays. A
// token that is part of a UTF-8 sequence keeps its vocabulary spelling, one whose key would be
// empty its text. Classes are numbered in the order of first appearance by ascending id.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

struct EngramTokenMap {
  std::vector<int32_t> class_of;  // [vocab_size], each in 0 .. class_count - 1
  int32_t class_count = 0;  // the configuration states it; a difference is fatal to the caller
};

// Error: utf8proc cannot normalize a token (its message).
Result<EngramTokenMap> engram_token_map(const Tokenizer& tokenizer);

}  // namespace cachalot
