// How many scores begin with which bits, counted by several threads: where few rows choose among
// very many entries, threads drop together what cannot be among the k largest, and TopEntries
// chooses among the rest.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/top_entries.h"

namespace cachalot::cpu {

class ScoreCounts {
 public:
  static constexpr int64_t kDigits = 2048;

  // counts: [threads, kDigits].
  explicit ScoreCounts(int32_t* counts) : counts_(counts) {}

  void clear(int thread) { std::fill_n(counts_ + thread * kDigits, kDigits, 0); }
  void add(int thread, const float* scores, int64_t n) {
    int32_t* counts = counts_ + thread * kDigits;
    for (int64_t i = 0; i < n; ++i) ++counts[score_order(scores[i]) >> kShift];
  }

  // After threads 0 .. threads - 1 have counted: the k largest have this order or a larger one
  // (score_order).
  uint32_t least_of(int64_t k, int threads) const {
    int64_t digit = kDigits - 1;
    for (; digit > 0; --digit) {
      for (int thread = 0; thread < threads; ++thread) k -= counts_[thread * kDigits + digit];
      if (k <= 0) break;
    }
    return static_cast<uint32_t>(digit) << kShift;
  }

 private:
  static constexpr int kShift = 21;

  int32_t* counts_;
};

}  // namespace cachalot::cpu
