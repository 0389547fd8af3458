// Logits -> the next token.
//
// In this order: logit bias; repetition penalty over the tokens of prompt and output; presence and
// frequency penalty over those of the output; the mask; temperature; top-k; top-p; min-p; then one
// draw.
// Ranks go by logit, ties to the lower id. A token with logit -inf is masked: its probability is 0.
//
// At the edges:
//   temperature <= 1e-5  greedy: the best logit after bias and penalties, nothing is drawn
//   top_k 1, top_p 0     only the best token is left: greedy as well
//   min_p 1              the best token and those exactly as probable are left
//   weights below 2^-64 of the best token's count as 0: no draw of 53 bits can tell them from it
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/random.h"
#include "engine/token_distribution.h"
#include "engine/token_mask.h"
#include "engine/token_weights.h"

namespace cachalot {

inline constexpr double kGreedyTemperature = 1e-5;

struct SamplingParameters {
  double temperature = 1;  // 0 .. 2
  int64_t top_k = 0;       // keep the k best tokens; 0: all
  double top_p = 1;        // 0 .. 1: the fewest best tokens that together reach this probability
  double min_p = 0;        // 0 .. 1: at least this share of the best token's probability
  double repetition_penalty = 1;  // 0 < r <= 10: divides positive logits, multiplies negative ones
  double presence_penalty = 0;    // -2 .. 2: subtracted once
  double frequency_penalty = 0;   // -2 .. 2: subtracted per occurrence
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // token, -100 .. 100: added
  uint64_t seed = 0;

  bool greedy() const { return temperature <= kGreedyTemperature || top_k == 1 || top_p == 0; }
};

// Errors name the field, the range and the value found.
Status validate(const SamplingParameters& parameters, int64_t vocab_size);

// Draws the tokens of one answer.
class Sampler {
 public:
  // `parameters` have been validated. `choice` numbers the answers to one prompt. `mask`, if any,
  // is this answer's own and outlives the sampler.
  Sampler(SamplingParameters parameters, std::span<const int32_t> prompt, uint32_t choice = 0,
          TokenMask* mask = nullptr);

  // logits: [vocab]; `position`: the number of tokens before the one to draw. Errors: a row that
  // means nothing (NaN or +inf in it, or every token masked); it ends this request only.
  Result<int32_t> sample(std::span<const float> logits, int64_t position);

  // Whether sample() gives the best token of the logits as they are, for every row.
  bool takes_best() const;

  // What sample() draws from, if `drafts` followed the output: penalties and mask count them, but
  // nothing is kept. Valid until the next call. Errors: as for sample().
  Result<TokenDistribution> distribution(std::span<const float> logits,
                                         std::span<const int32_t> drafts = {});

  // The number this answer draws at a position.
  double random(int64_t position, RandomUse use = RandomUse::token) const {
    return uniform_random(parameters_.seed, choice_, static_cast<uint64_t>(position), use);
  }

  // The token belongs to the output from now on.
  void accept(int32_t token);

 private:
  std::span<const float> adjust(std::span<const float> logits, std::span<const int32_t> drafts);
  void penalize(int32_t token, int64_t times);
  void apply_mask(std::span<const int32_t> drafts);
  void weigh(TokenWeights& weights) const;

  SamplingParameters parameters_;
  uint32_t choice_;
  TokenMask* mask_;
  bool penalties_;
  std::unordered_map<int32_t, int64_t> seen_;  // token of prompt or output -> times in the output
  std::vector<float> adjusted_;                // [vocab]
  std::vector<float> distribution_;            // [vocab], the last one
};

}  // namespace cachalot
