// What of a step's results the host looks at, besides tokens and confidence: the rest may stay
// where it was computed.
#pragma once

#include <cstdint>
#include <span>

namespace cachalot {

struct WantedResults {
  // Consecutive rows of logits.
  struct Rows {
    int64_t first = 0, count = 0;
  };
  std::span<const Rows> logits;
  bool taps = false;
};

}  // namespace cachalot
