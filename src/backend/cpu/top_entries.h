// The k largest of n scores, ties to the lower index, in ascending order of index, in linear time:
// a radix select on the scores' bits finds the k-th largest, one more pass collects.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace cachalot::cpu {

// Ascending with the score, 0 for what is never chosen: -infinity and NaN. Both zeros are equal.
inline uint32_t score_order(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return order > 0x007FFFFFu && order <= 0xFF800000u ? order : 0;
}

class TopEntries {
 public:
  // Calls emit(i) for the chosen, i ascending; returns how many there are: k, or fewer when fewer
  // can be chosen.
  template <class Emit>
  int64_t choose(const float* scores, int64_t n, int64_t k, Emit&& emit) {
    uint32_t least = 1;  // everything at or above it is chosen, ties in order
    int64_t ties = k;    // how many of those equal to `least`
    if (n > k) find_least(scores, n, k, least, ties);
    int64_t chosen = 0;
    for (int64_t i = 0; i < n && chosen < k; ++i) {
      const uint32_t order = score_order(scores[i]);
      if (order < least) continue;
      if (order == least && ties-- <= 0) continue;
      emit(i);
      ++chosen;
    }
    return chosen;
  }

 private:
  // The order of the k-th largest, and how many of the k have exactly that order.
  void find_least(const float* scores, int64_t n, int64_t k, uint32_t& least, int64_t& ties) {
    constexpr int kShifts[3] = {21, 10, 0};
    uint32_t prefix = 0, mask = 0;
    int64_t left = k;
    for (const int shift : kShifts) {
      counts_.fill(0);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t order = score_order(scores[i]);
        if ((order & mask) == prefix) ++counts_[(order >> shift) & digit_mask(shift)];
      }
      uint32_t digit = digit_mask(shift);
      for (; digit > 0 && counts_[digit] < left; --digit) left -= counts_[digit];
      prefix |= digit << shift;
      mask |= digit_mask(shift) << shift;
    }
    if (prefix == 0) return;  // fewer than k can be chosen: all of them
    least = prefix;
    ties = left;
  }
  static constexpr uint32_t digit_mask(int shift) { return shift == 0 ? 0x3FFu : 0x7FFu; }

  std::array<int64_t, 2048> counts_;
};

}  // namespace cachalot::cpu
