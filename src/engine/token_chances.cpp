#include "engine/token_chances.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/token_weights.h"

namespace cachalot {
namespace {

double log_sum_exp(std::span<const float> logits) {
  TokenWeights& weights = TokenWeights::of_this_thread();
  // A row that means nothing gives its tokens no chance.
  if (!weights.start(logits)) return std::numeric_limits<double>::quiet_NaN();
  weights.weigh(1, 0);
  return double{weights.best()} + std::log(weights.total());
}

}  // namespace

TokenChances::TokenChances(std::span<const float> logits)
    : logits_(logits), log_total_(log_sum_exp(logits)) {}

float TokenChances::logprob(int32_t id) const {
  const double value = static_cast<double>(logits_[static_cast<size_t>(id)]) - log_total_;
  // Also where the row means nothing.
  return value > static_cast<double>(kLeastLogprob) ? static_cast<float>(value) : kLeastLogprob;
}

std::vector<TokenChance> TokenChances::best(int64_t count) const {
  const auto kept = static_cast<ptrdiff_t>(std::min<int64_t>(count, std::ssize(logits_)));
  if (kept <= 0) return {};
  std::vector<int32_t> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](int32_t a, int32_t b) {
    const float first = logits_[static_cast<size_t>(a)], second = logits_[static_cast<size_t>(b)];
    return first > second || (first == second && a < b);
  });
  std::vector<TokenChance> chances;
  for (ptrdiff_t i = 0; i < kept; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    chances.push_back({id, logprob(id)});
  }
  return chances;
}

}  // namespace cachalot
