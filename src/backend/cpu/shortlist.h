// Choosing the k largest of very many scores without counting them all: the k-th largest of the
// maxima of small parts is a bound that at least k scores reach, and not many more. TopEntries
// chooses among those.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/top_entries.h"

namespace cachalot::cpu {

// A score that at least k of x reach, and no more than an eighth more where few are equal;
// -infinity where fewer than k are larger than that.
inline float bound_of_largest(const RowKernels& rows, const float* x, int64_t n, int64_t k) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto score_at = [](uint32_t order) {
    return std::bit_cast<float>(order & 0x80000000u ? order & 0x7FFFFFFFu : ~order);
  };
  uint32_t low = score_order(std::numeric_limits<float>::lowest());
  uint32_t high = score_order(kInfinity) + 1;  // what fewer than k reach
  if (rows.count_at_least(x, n, score_at(low)) < k) return -kInfinity;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const int64_t count = rows.count_at_least(x, n, score_at(middle));
    (count < k ? high : low) = middle;
    if (count >= k && count <= k + k / 8) break;
  }
  return score_at(low);
}

class Shortlist {
 public:
  // Memory to choose `most` or fewer with, aligned as floats.
  static int64_t bytes(int64_t most) {
    return (most_maxima(most) + 2 * most_places(most)) * static_cast<int64_t>(sizeof(float));
  }
  explicit Shortlist(std::byte* memory) : memory_(memory) {}

  // Elements of a part whose maximum is taken: about four maxima for each that is chosen.
  static int64_t part(int64_t n, int64_t k) { return n / (4 * k); }

  // As TopEntries::choose.
  template <class Emit>
  int64_t choose(const RowKernels& rows, const float* scores, int64_t n, int64_t k, Emit&& emit) {
    if (k > 0 && part(n, k) >= 2) {
      float* maxima = reinterpret_cast<float*>(memory_);
      int32_t* places = reinterpret_cast<int32_t*>(maxima + most_maxima(k));
      const int64_t parts = rows.lane_maxima(scores, n, part(n, k), maxima);
      const float least = bound_of_largest(rows, maxima, parts, k);
      const int64_t count = rows.list_at_least(scores, n, least, places, most_places(k));
      if (count <= most_places(k)) {
        float* kept = reinterpret_cast<float*>(places + most_places(k));
        for (int64_t i = 0; i < count; ++i) kept[i] = scores[places[i]];
        return TopEntries().choose(kept, count, k, [&](int64_t i) { emit(places[i]); });
      }
    }
    return TopEntries().choose(scores, n, k, emit);  // few, or too many equal ones
  }

 private:
  static int64_t most_maxima(int64_t k) { return 6 * k + kMostLanes; }
  static int64_t most_places(int64_t k) { return 4 * k + 1024; }

  std::byte* memory_;
};

}  // namespace cachalot::cpu
