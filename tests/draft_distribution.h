// Whether drafted answers to a prompt are distributed as plain ones.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "engine/speculation.h"
#include "memo_engine.h"

namespace cachalot::test {

using TokenPair = std::pair<int32_t, int32_t>;
using PairCounts = std::map<TokenPair, int64_t>;

struct DistributionSetting {
  std::string name;
  SamplingParameters sampling;
  DraftParameters drafts;
};

// The two tokens behind `anchor`, for `draws` seeds from `first_seed` on.
inline PairCounts draw_pairs(MemoEngine& engine, const DistributionSetting& setting, int32_t anchor,
                             int64_t draws, uint64_t first_seed) {
  PairCounts counts;
  StepCosts costs;
  for (int64_t i = 0; i < draws; ++i) {
    if (!engine.truncate(0, engine.prompt_tokens())) throw std::runtime_error("truncate");
    SamplingParameters sampling = setting.sampling;
    sampling.seed = first_seed + static_cast<uint64_t>(i);
    Sampler sampler(sampling, {});
    DraftDepth depth(setting.drafts, engine.config().dspark_block_size);
    std::vector<int32_t> tokens = {anchor};
    while (tokens.size() < 3) {
      const CycleRequest request{.sequence = 0,
                                 .anchor = tokens.back(),
                                 .sampler = &sampler,
                                 .depth = &depth,
                                 .most_tokens = 8,
                                 .take = [&](int32_t token, std::span<const float>) {
                                   tokens.push_back(token);
                                   return true;
                                 }};
      const auto step = speculative_cycle(engine, costs, {&request, 1}, true);
      if (!step) throw std::runtime_error(step.error().message);
      const Status& status = step->cycles.front().status;
      if (!status) throw std::runtime_error(status.error().message);
    }
    ++counts[{tokens[1], tokens[2]}];
  }
  return counts;
}

struct ChiSquare {
  double statistic = 0;
  int degrees = 0;

  // Upper bound at p = 0.001 (Wilson and Hilferty).
  double limit() const {
    const double t = 2.0 / (9.0 * degrees);
    return degrees * std::pow(1 - t + 3.0902 * std::sqrt(t), 3);
  }
};

// Two samples of the same size; `cell` maps a pair to what is compared. Cells seen too seldom are
// taken together.
template <class Cell>
ChiSquare compare(const PairCounts& a, const PairCounts& b, Cell cell) {
  std::map<decltype(cell(TokenPair())), std::pair<double, double>> cells;
  for (const auto& [pair, count] : a) cells[cell(pair)].first += static_cast<double>(count);
  for (const auto& [pair, count] : b) cells[cell(pair)].second += static_cast<double>(count);
  ChiSquare result{.statistic = 0, .degrees = -1};
  std::pair<double, double> rare;
  const auto add = [&](const std::pair<double, double>& counts) {
    const double difference = counts.first - counts.second;
    result.statistic += difference * difference / (counts.first + counts.second);
    ++result.degrees;
  };
  for (const auto& [key, counts] : cells) {
    if (counts.first + counts.second >= 16) {
      add(counts);
    } else {
      rare.first += counts.first;
      rare.second += counts.second;
    }
  }
  if (rare.first + rare.second > 0) add(rare);
  return result;
}

// A fact; the anchor, its full stop, may be followed by any other one.
inline std::vector<int32_t> open_ended_prompt() { return {0, 277, 457, 338, 1854, 272, 1596}; }
inline constexpr int32_t kOpenEndedAnchor = 16;

inline std::vector<DistributionSetting> distribution_settings() {
  const auto fixed = [](int64_t depth) {
    return DraftParameters{
        .mode = DraftMode::fixed, .depth = depth, .method = DraftMethod::probabilistic};
  };
  SamplingParameters penalized = {.temperature = 1.6, .top_k = 60, .top_p = 0.95};
  penalized.repetition_penalty = 1.4;
  penalized.presence_penalty = 0.7;
  penalized.logit_bias = {{16, 2.0}, {303, 1.5}};
  return {
      {.name = "depth 2, temperature 1", .sampling = {.temperature = 1}, .drafts = fixed(2)},
      {.name = "depth 5, all transforms", .sampling = penalized, .drafts = fixed(5)},
      {.name = "adaptive depth, temperature 2, min-p",
       .sampling = {.temperature = 2, .min_p = 0.001},
       .drafts = {.mode = DraftMode::automatic, .depth = 0, .method = DraftMethod::probabilistic}},
  };
}

// First tokens, second tokens and both together.
inline void expect_equal_distributions(const PairCounts& a, const PairCounts& b,
                                       const std::string& name) {
  const auto expect = [&](const char* what, const ChiSquare& result) {
    EXPECT_GE(result.degrees, 3) << name << ", " << what;
    EXPECT_LT(result.statistic, result.limit())
        << name << ", " << what << ", " << result.degrees << " degrees of freedom";
    std::printf("%s, %s: chi-square %.1f, %d degrees, limit %.1f\n", name.c_str(), what,
                result.statistic, result.degrees, result.limit());
  };
  expect("first tokens", compare(a, b, [](const TokenPair& pair) { return pair.first; }));
  expect("second tokens", compare(a, b, [](const TokenPair& pair) { return pair.second; }));
  expect("pairs", compare(a, b, [](const TokenPair& pair) { return pair; }));
}

}  // namespace cachalot::test
