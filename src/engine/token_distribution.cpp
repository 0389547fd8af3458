#include "engine/token_distribution.h"

#include <bit>
#include <vector>

#include "base/check.h"
#include "engine/weight_blocks.h"

namespace cachalot {
namespace {

template <class Visit>
void for_each_block(std::span<const float> weights, Visit visit) {
  const auto tokens = std::ssize(weights);
  for (int64_t index = 0; index * kWeightBlock < tokens; ++index) {
    const WeightBlock block = weight_block(index, tokens);
    if (!visit(block, sum_of_weights(weights.data() + block.first, block.count))) return;
  }
}

}  // namespace

int32_t TokenDistribution::draw(double random) const {
  WeightSearch search(random * total);
  for_each_block(weights,
                 [&](const WeightBlock& block, double sum) { return search.add(block, sum); });
  const int32_t token = search.token(weights);
  CACHALOT_CHECK(token >= 0, "the best token has weight above 0");
  return token;
}

Verdict accept_or_replace(const TokenDistribution& target, const TokenDistribution& proposed,
                          int32_t draft, double accept_random, double token_random) {
  // Strictly less: a token the target excludes is never taken, whatever the number drawn.
  if (accept_random * proposed.probability(draft) < target.probability(draft)) {
    return {.token = draft, .accepted = true};
  }
  std::vector<float> rest(target.weights.size());
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto excess = static_cast<float>(double{target.weights[i]} / target.total -
                                           double{proposed.weights[i]} / proposed.total);
    // 0 where it is negative, without a branch.
    rest[i] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(excess) & -static_cast<uint32_t>(excess > 0));
  }
  double total = 0;
  for_each_block(rest, [&](const WeightBlock&, double sum) {
    total += sum;
    return true;
  });
  // Equal up to rounding: a draft of such a distribution is rejected by rounding alone.
  if (total == 0) return {.token = target.draw(token_random), .accepted = false};
  return {.token = TokenDistribution{rest, total}.draw(token_random), .accepted = false};
}

}  // namespace cachalot
