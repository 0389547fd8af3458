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

void take_drafts(Queue&, const TakeDraftsArgs& args) {
  check_shapes(args);
  for (int64_t t = 0; t < args.ids.extent(0); ++t) {
    const int32_t place = args.places.data[t];
    args.ids.data[t] = place < 0 ? args.given.data[t] : args.drafts.data[place];
  }
}

}  // namespace cachalot::reference
