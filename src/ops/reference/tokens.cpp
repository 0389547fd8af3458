#include <cmath>
#include <limits>

#include "ops/reference/queue.h"

namespace cachalot::reference {

void best_tokens(Queue&, const BestTokensArgs& args) {
  check_shapes(args);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t row = 0; row < args.logits.extent(0); ++row) {
    const float* logits = args.logits.row(row);
    int32_t best = -1;
    bool usable = true;
    for (int32_t id = 0; id < args.logits.extent(1); ++id) {
      if (std::isnan(logits[id]) || logits[id] == kInfinity) usable = false;
      if (logits[id] == -kInfinity) continue;
      if (best < 0 || logits[id] > logits[best]) best = id;
    }
    args.best.data[row] = usable ? best : -1;
  }
}

}  // namespace cachalot::reference
