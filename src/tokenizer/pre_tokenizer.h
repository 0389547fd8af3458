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
  // `description`: Split steps (Isolated, not inverted, a Regex) in a Sequence that ends with
  // ByteLevel without prefix space and regex, or such a ByteLevel alone. Everything else is an
  // error that names it.
  static Result<PreTokenizer> create(const nlohmann::json& description);

  // Appends the pieces of `text`, in order and without loss. Each maximal run of bytes that are not
  // well-formed UTF-8 is one piece.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  // The same by the patterns alone, never by the hand-written pass.
  void split_by_patterns(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  Status add(const nlohmann::json& step);

  std::vector<std::string> patterns_;
  std::vector<Regex> steps_;
  bool is_deepseek_ = false;
};

}  // namespace cachalot
