#include "engine/token_distribution.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {
namespace {

// Draws in proportion to weight(candidate), all of them at least 0; -1: they are all 0.
template <class Weight>
int32_t draw_by(std::span<const Candidate> candidates, double goal, Weight weight) {
  double sum = 0;
  int32_t possible = -1;
  for (const Candidate& candidate : candidates) {
    const double amount = weight(candidate);
    if (amount == 0) continue;
    possible = candidate.id;
    sum += amount;
    if (sum > goal) break;
  }
  return possible;
}

}  // namespace

double TokenDistribution::probability(int32_t token) const {
  const auto at = std::ranges::lower_bound(candidates, token, {}, &Candidate::id);
  return at != candidates.end() && at->id == token ? at->weight / total : 0;
}

int32_t TokenDistribution::draw(double random) const {
  const int32_t token = draw_by(candidates, random * total, [](const Candidate& candidate) {
    return double{candidate.weight};
  });
  CACHALOT_CHECK(token >= 0, "the best token has weight above 0");
  return token;
}

Verdict accept_or_replace(const TokenDistribution& target, const TokenDistribution& proposed,
                          int32_t draft, double accept_random, double token_random) {
  // Strictly less: a token the target excludes is never taken, whatever the number drawn.
  if (accept_random * proposed.probability(draft) < target.probability(draft)) {
    return {.token = draft, .accepted = true};
  }
  std::vector<Candidate> rest;
  auto other = proposed.candidates.begin();
  double total = 0;
  for (const Candidate& candidate : target.candidates) {
    while (other != proposed.candidates.end() && other->id < candidate.id) ++other;
    const bool both = other != proposed.candidates.end() && other->id == candidate.id;
    const double excess =
        candidate.weight / target.total - (both ? other->weight / proposed.total : 0);
    if (excess <= 0) continue;
    rest.push_back(
        {.logit = candidate.logit, .id = candidate.id, .weight = static_cast<float>(excess)});
    total += rest.back().weight;
  }
  // Equal up to rounding: a draft of such a distribution is rejected by rounding alone.
  if (total == 0) return {.token = target.draw(token_random), .accepted = false};
  return {.token = TokenDistribution{rest, total}.draw(token_random), .accepted = false};
}

}  // namespace cachalot
