// The distribution a token is drawn from, after everything a request does to the logits.
#pragma once

#include <cstdint>
#include <span>

namespace cachalot {

struct TokenDistribution {
  std::span<const float> weights;  // by token, in proportion to the probabilities, one above 0
  double total = 0;                // of the weights

  double probability(int32_t token) const {
    return double{weights[static_cast<size_t>(token)]} / total;
  }

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
