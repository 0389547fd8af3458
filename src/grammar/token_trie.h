// The vocabulary as a tree of bytes, in the order of a depth-first walk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace cachalot {

class TokenTrie {
 public:
  struct Node {
    int32_t behind;       // the first node that does not lie below this one
    int32_t first_token;  // in tokens(); those of this node end where those of the next node begin
    uint16_t depth;       // bytes up to and with this one
    uint8_t byte;
  };

  // Added tokens stay out: no text is spelled with them.
  explicit TokenTrie(const Tokenizer& tokenizer);

  // One more than there are: the last one only ends the tokens of the one before.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  int32_t longest() const { return longest_; }  // bytes

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  int32_t longest_ = 0;
};

}  // namespace cachalot
