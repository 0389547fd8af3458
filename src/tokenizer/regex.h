// A compiled pattern that finds its matches in well-formed UTF-8.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

class Regex {
 public:
  // `pattern` as in tokenizer.json (see regex_translation.h). Errors: a construct that is not
  // supported, a pattern that does not compile, one that matches the empty string.
  static Result<Regex> compile(std::string_view pattern);

  // Appends `text` cut at both ends of every match, leftmost first; no piece is empty.
  void split_isolated(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;  // pcre2_code, immutable once compiled
};

}  // namespace cachalot
