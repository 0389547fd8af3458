// The distribution a token is drawn from, after everything a request does to the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cachalot {

struct Candidate {
  float logit = 0;
  int32_t id = 0;
  float weight = 0;  // in proportion to the probability
};

// Candidates by ascending id; all other tokens have probability 0. At least one weight is above 0.
struct TokenDistribution {
  std::span<const Candidate> candidates;
  double total = 0;  // of the weights

  double probability(int32_t token) const;

  // The inverse of the cumulative distribution, in the order of ids; `random` is in [0, 1).
  int32_t draw(double random) const;
};

struct Verdict {
  int32_t token = 0;
  bool accepted = false;  // the draft was taken over
};

// Rejection by the ratio of probabilities (spec: model, 10.2 a; Leviathan, Kalman, Matias: "Fast
// inference from transformers via speculative decoding", ICML 2023): `draft` was drawn from
// `proposed`; it is taken over with probability min(1, target / proposed), otherwise the token
// comes from max(0, target - proposed), normalised. Either way it is distributed as `target`.
Verdict accept_or_replace(const TokenDistribution& target, const TokenDistribution& proposed,
                          int32_t draft, double accept_random, double token_random);

}  // namespace cachalot
