// A mask with a state: what a grammar would be, in ten lines.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/token_mask.h"

namespace cachalot::test {

// Lets every second token of the vocabulary through, in turn the even and the odd ones.
class AlternatingMask final : public TokenMask {
 public:
  explicit AlternatingMask(int64_t vocabulary)
      : words_(static_cast<size_t>(vocabulary + 63) / 64) {}

  std::span<const uint64_t> allowed(std::span<const int32_t> drafts) override {
    const bool odd = (accepted_.size() + drafts.size()) % 2 != 0;
    std::ranges::fill(words_, odd ? 0xAAAAAAAAAAAAAAAA : 0x5555555555555555);
    return words_;
  }
  void accept(int32_t token) override { accepted_.push_back(token); }

  const std::vector<int32_t>& accepted() const { return accepted_; }

 private:
  std::vector<uint64_t> words_;
  std::vector<int32_t> accepted_;
};

}  // namespace cachalot::test
