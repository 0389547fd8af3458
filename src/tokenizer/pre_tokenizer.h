// Cuts text into the pieces that are encoded one by one, as tokenizer.json's "pre_tokenizer" says.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"

namespace cachalot {

class PreTokenizer {
 public:
  // by_patterns: run the patterns even where a hand-written pass equals them.
  enum class Method { fastest, by_patterns };

  // `description`: Split steps (Isolated, not inverted, a Regex) in a Sequence that ends with
  // ByteLevel without prefix space and regex, or such a ByteLevel alone. Everything else is an
  // error that names it.
  static Result<PreTokenizer> create(const nlohmann::json& description,
                                     Method method = Method::fastest);

  // Appends the pieces of `text`, in order and without loss. Each maximal run of bytes that are not
  // well-formed UTF-8 is one piece.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  void split_valid(std::string_view text, std::vector<std::string_view>& pieces) const;

  std::vector<Regex> steps_;  // none where the hand-written pass is used
  bool is_deepseek_ = false;
};

}  // namespace cachalot
