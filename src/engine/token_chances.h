// What the model itself thinks of tokens: log-probabilities before temperature, penalties and
// masks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cachalot {

struct TokenChance {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, finite: at least kLeastLogprob
};

// Stands for probability 0, for logits of -inf too: JSON has no infinity.
inline constexpr float kLeastLogprob = -9999.0F;

// The distribution of one row of logits [vocab], without NaN or +inf.
class TokenChances {
 public:
  explicit TokenChances(std::span<const float> logits);

  float logprob(int32_t id) const;
  // The likeliest `count` tokens, best first, ties to the lower id.
  std::vector<TokenChance> best(int64_t count) const;

 private:
  std::span<const float> logits_;
  double log_total_;  // log of the sum of exp(logit)
};

}  // namespace cachalot
