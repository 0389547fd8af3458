#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {

void markov_step(Queue&, const MarkovStepArgs& args) {
  check_shapes(args);
  const int64_t block = args.drafts.extent(1);
  const int64_t vocab = args.embed.extent(0), rank = args.embed.extent(1);
  for (int64_t s = 0; s < args.drafts.extent(0); ++s) {
    int32_t* chain = args.chain.row(s);
    if (args.step == 0) chain[0] = args.ids.data[s * block];
    const int64_t row = s * block + args.step;
    std::copy_n(args.embed.row(chain[args.step]), rank, args.features.row(row));
    const Floats feature = to_floats(args.features.row(row), rank);
    float* logits = args.logits.row(row);
    for (int64_t v = 0; v < vocab; ++v) {
      const Floats weight = to_floats(args.head.row(v), rank);
      logits[v] += dot(feature.data(), weight.data(), rank);
    }
    const auto best = static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
    args.drafts.row(s)[args.step] = best;
    chain[args.step + 1] = best;
  }
}

void draft_confidence(Queue&, const DraftConfidenceArgs& args) {
  check_shapes(args);
  const int64_t dim = args.x.extent(1), rank = args.features.extent(1);
  const Floats projection = to_floats(args.projection.data, dim + rank);
  for (int64_t r = 0; r < args.x.extent(0); ++r) {
    Floats joined = to_floats(args.x.row(r), dim);
    const Floats feature = to_floats(args.features.row(r), rank);
    joined.insert(joined.end(), feature.begin(), feature.end());
    args.confidence.data[r] = dot(joined.data(), projection.data(), dim + rank);
  }
}

}  // namespace cachalot::reference
