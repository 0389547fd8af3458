// tokenizer.json as it stands: the long lists flat, everything else as JSON. Whether its values
// make sense is checked by those who use them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

struct TokenizerFile {
  struct Token {
    uint32_t offset, length;  // in text
    int64_t id;
  };
  struct Merge {
    uint32_t offset, left, right;  // the two spellings back to back in text, and their lengths
  };
  struct AddedToken {
    std::string content;
    int64_t id = 0;
    bool special = false;
    bool normalized = false;
  };

  std::string text;               // the spellings that vocabulary and merges refer to
  std::vector<Token> vocabulary;  // model.vocab, in the file's order
  std::vector<Merge> merges;      // model.merges, most urgent first
  std::vector<AddedToken> added;  // added_tokens
  nlohmann::json rest;            // the document without these three

  std::string_view spelling(const Token& token) const {
    return std::string_view(text).substr(token.offset, token.length);
  }

  // Errors: not JSON, a key given twice, nesting too deep, a part missing or of the wrong type, a
  // model that is not plain BPE, added tokens with options other than special and normalized.
  static Result<TokenizerFile> parse(std::string_view json);
};

}  // namespace cachalot
