// Byte-pair encoding of one word: start from single bytes, join the adjacent pair of the lowest
// rank (leftmost of equals) until no pair has one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace cachalot {

class BytePairEncoder {
 public:
  // Errors: a byte without a token, a merge of or into a token that does not exist, a merge given
  // twice.
  static Result<BytePairEncoder> create(const TokenizerFile& file, const Vocabulary& vocabulary);

  // Appends the ids of `word`, in time n log n of its length at most.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShortWord = 96;  // bytes; where searching ranks ends to beat a heap

  struct Slot {
    int32_t left = -1, right = -1;  // -1: free
    uint32_t rank = kNoRank;
  };
  size_t first_slot(int32_t left, int32_t right) const;
  uint32_t rank_of(int32_t left, int32_t right) const;
  Status add_merge(int32_t left, int32_t right, int32_t joined);
  void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<int32_t> joined_;       // [rank] the token a merge makes
  std::vector<Slot> slots_;           // open addressing by pair
  std::vector<uint32_t> byte_ranks_;  // [256 * 256] ranks of pairs of bytes
};

}  // namespace cachalot
