// Finds the spellings of added tokens in text: leftmost first, the longest of those that start
// there.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_file.h"

namespace cachalot {

struct AddedTokenMatch {
  size_t begin, end;  // bytes of the text
  int32_t id;
};

class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<TokenizerFile::AddedToken>& tokens);

  // Appends the matches in `text`, ascending, their positions counted from `base`.
  void find(std::string_view text, size_t base, std::vector<AddedTokenMatch>& matches) const;

 private:
  // Hugging Face cuts out tokens with normalized = false first and looks for the others in what is
  // left, so that one of the second kind never wins over an overlapping one of the first.
  class Trie {
   public:
    Trie();
    void insert(std::string_view spelling, int32_t id);
    void find(std::string_view text, size_t base, std::vector<AddedTokenMatch>& matches) const;

   private:
    struct Node {
      int32_t id = -1;                  // of the token that ends here
      uint32_t child = 0, sibling = 0;  // 0: none
      char byte = 0;
    };
    uint32_t step(uint32_t node, char byte) const;

    std::vector<Node> nodes_;            // 0 is the root
    std::array<uint32_t, 256> first_{};  // the root's children by byte
  };

  Trie raw_, normalized_;
  bool has_normalized_ = false;
};

}  // namespace cachalot
