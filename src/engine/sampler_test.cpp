#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/random.h"

namespace cachalot {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t sample_one(const SamplingParameters& parameters, std::span<const float> logits,
                   int64_t position = 0, std::span<const int32_t> prompt = {}) {
  Sampler sampler(parameters, prompt);
  const auto token = sampler.sample(logits, position);
  EXPECT_TRUE(token.has_value());
  return token.value_or(-1);
}

// The definition, in double precision and with a full sort.
std::vector<double> exact_probabilities(const SamplingParameters& parameters,
                                        std::span<const float> logits) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  size_t kept = order.size();
  if (parameters.top_k > 0) kept = std::min(kept, static_cast<size_t>(parameters.top_k));
  const auto weight = [&](size_t rank) {
    return std::exp((double{logits[order[rank]]} - logits[order[0]]) / parameters.temperature);
  };
  double total = 0;
  for (size_t rank = 0; rank < kept; ++rank) total += weight(rank);
  double sum = 0;
  for (size_t rank = 0; rank < kept; ++rank) {
    sum += weight(rank);
    if (sum >= parameters.top_p * total) kept = rank + 1;
  }
  while (kept > 1 && weight(kept - 1) < parameters.min_p) --kept;
  total = 0;
  for (size_t rank = 0; rank < kept; ++rank) total += weight(rank);
  std::vector<double> probabilities(logits.size(), 0.0);
  for (size_t rank = 0; rank < kept; ++rank) probabilities[order[rank]] = weight(rank) / total;
  return probabilities;
}

// Upper bound of the chi-square distribution at p = 0.001 (Wilson and Hilferty).
double chi_square_limit(int degrees) {
  const double t = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - t + 3.0902 * std::sqrt(t), 3);
}

void expect_distribution(SamplingParameters parameters, std::span<const float> logits) {
  constexpr int kDraws = 40000;
  parameters.seed = 20260901;
  Sampler sampler(parameters, {});
  std::vector<int> counts(logits.size());
  for (int position = 0; position < kDraws; ++position) ++counts[*sampler.sample(logits, position)];
  const std::vector<double> expected = exact_probabilities(parameters, logits);
  double chi_square = 0, rare_expected = 0;
  int rare_count = 0, cells = 0;
  for (size_t token = 0; token < logits.size(); ++token) {
    const double mean = expected[token] * kDraws;
    if (mean == 0) {
      EXPECT_EQ(counts[token], 0) << "token " << token;
    }
    if (mean < 8) {
      rare_expected += mean;
      rare_count += counts[token];
      continue;
    }
    chi_square += (counts[token] - mean) * (counts[token] - mean) / mean;
    ++cells;
  }
  if (rare_expected > 0) {
    chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    ++cells;
  }
  ASSERT_GT(cells, 1);
  EXPECT_LT(chi_square, chi_square_limit(cells - 1));
}

std::vector<float> ramp(int size, float range) {
  std::vector<float> logits(size);
  for (int i = 0; i < size; ++i) logits[(i * 37) % size] = range * static_cast<float>(i) / size;
  return logits;
}

TEST(Random, AgreesWithThePublishedVectorsOfPhilox) {
  // Random123's kat_vectors, philox4x32 10.
  EXPECT_EQ(philox_4x32({0, 0, 0, 0}, 0, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, DependsOnSeedChoiceAndPosition) {
  const double base = uniform_random(1, 2, 3);
  EXPECT_EQ(base, uniform_random(1, 2, 3));
  EXPECT_NE(base, uniform_random(2, 2, 3));
  EXPECT_NE(base, uniform_random(1, 3, 3));
  EXPECT_NE(base, uniform_random(1, 2, 4));
  EXPECT_NE(base, uniform_random(uint64_t{1} << 32 | 1, 2, 3));
  EXPECT_NE(base, uniform_random(1, 2, uint64_t{1} << 32 | 3));
}

TEST(Sampler, DrawsFromTheExactDistribution) {
  const std::vector<float> logits = ramp(60, 6);
  expect_distribution({}, logits);
  expect_distribution({.temperature = 0.5}, logits);
  expect_distribution({.temperature = 2}, logits);
  expect_distribution({.top_k = 7}, logits);
  expect_distribution({.top_p = 0.8}, logits);
  expect_distribution({.min_p = 0.2}, logits);
  expect_distribution({.temperature = 1.5, .top_k = 30, .top_p = 0.9, .min_p = 0.15}, logits);
}

TEST(Sampler, CutsTiesByTheLowerId) {
  const std::vector<float> logits = {1, 3, 3, 3, 3, 0};
  expect_distribution({.top_k = 2}, logits);
  expect_distribution({.top_p = 0.5}, logits);
  expect_distribution({.min_p = 1}, logits);  // all four remain
  const std::vector<float> flat(50, 2.5f);
  expect_distribution({.top_k = 10}, flat);
  expect_distribution({.top_p = 0.31}, flat);
}

TEST(Sampler, CutsALargeVocabularyAsAFullSortDoes) {
  std::vector<float> logits(20000);
  for (size_t i = 0; i < logits.size(); ++i)  // rounded to 1/8: many ties
    logits[i] = std::round(80 * (static_cast<float>(uniform_random(5, 0, i)) - 0.5f)) / 8;
  for (const SamplingParameters& parameters :
       {SamplingParameters{.top_k = 1000}, SamplingParameters{.top_p = 0.7},
        SamplingParameters{.top_k = 3000, .top_p = 0.9}, SamplingParameters{.top_p = 0.999999}}) {
    const std::vector<double> expected = exact_probabilities(parameters, logits);
    Sampler sampler(parameters, {});
    for (int position = 0; position < 300; ++position)
      ASSERT_GT(expected[*sampler.sample(logits, position)], 0) << position;
  }
}

TEST(Sampler, IsAFunctionOfSeedChoiceAndPosition) {
  const std::vector<float> logits = ramp(500, 3);
  Sampler one({.seed = 9}, {}), other({.seed = 9}, {}), choice({.seed = 9}, {}, 1);
  int different = 0;
  for (int position = 99; position >= 0; --position) {
    const int32_t token = *one.sample(logits, position);
    EXPECT_EQ(token, sample_one({.seed = 9}, logits, position));
    different += token != *choice.sample(logits, position);
  }
  EXPECT_GT(different, 80);
  EXPECT_EQ(*one.sample(logits, 7), *other.sample(logits, 7));
}

TEST(Sampler, IsGreedyAtZeroAndTinyTemperature) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0000002f, 2.0000002f, -kInf};
  for (const double temperature : {0.0, 1e-45, 1e-5})
    for (int position = 0; position < 50; ++position)
      EXPECT_EQ(sample_one({.temperature = temperature}, logits, position), 2);
}

TEST(Sampler, IsGreedyWithOneTokenLeft) {
  const std::vector<float> logits = {1, 2, 1.99f, -3};
  for (int position = 0; position < 50; ++position) {
    EXPECT_EQ(sample_one({.top_k = 1}, logits, position), 1);
    EXPECT_EQ(sample_one({.top_p = 0}, logits, position), 1);
    EXPECT_EQ(sample_one({.top_k = 1, .top_p = 0}, logits, position), 1);
    EXPECT_EQ(sample_one({.min_p = 1}, logits, position), 1);
  }
}

TEST(Sampler, NeverDrawsMaskedTokens) {
  const std::vector<float> logits = {-kInf, 1, -kInf, 1.5f, -kInf};
  for (const SamplingParameters& parameters :
       {SamplingParameters{}, SamplingParameters{.temperature = 2, .top_p = 0.99},
        SamplingParameters{.top_k = 5}, SamplingParameters{.temperature = 0},
        SamplingParameters{.repetition_penalty = 2, .logit_bias = {{0, 100}}}})
    for (int position = 0; position < 200; ++position) {
      const int32_t token = sample_one(parameters, logits, position, std::vector<int32_t>{0, 2});
      EXPECT_TRUE(token == 1 || token == 3);
    }
}

TEST(Sampler, RefusesRowsThatMeanNothing) {
  const std::vector<float> good = {1, 2, 3, 4};
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature}, {});
    for (const size_t place : {0, 1, 3})
      for (const float value : {kNan, -kNan, kInf}) {
        std::vector<float> bad = good;
        bad[place] = value;
        const auto token = sampler.sample(bad, 0);
        ASSERT_FALSE(token.has_value());
        EXPECT_NE(token.error().message.find(fmt::format("token {}", place)), std::string::npos);
      }
    EXPECT_FALSE(sampler.sample(std::vector<float>(4, -kInf), 0).has_value());
    EXPECT_TRUE(sampler.sample(good, 0).has_value());  // the next row is served
  }
}

TEST(Sampler, AddsTheBiasBeforeTheRepetitionPenalty) {
  // Token 0: (1 + 3) / 2 = 2 beats 1.9; in the other order 1 / 2 + 3 = 3.5 would beat 3.
  const SamplingParameters parameters{
      .temperature = 0, .repetition_penalty = 2, .logit_bias = {{0, 3}}};
  const std::vector<int32_t> prompt = {0};
  EXPECT_EQ(sample_one(parameters, std::vector<float>{1, 1.9f}, 0, prompt), 0);
  EXPECT_EQ(sample_one(parameters, std::vector<float>{1, 3.0f}, 0, prompt), 1);
}

TEST(Sampler, RepetitionLowersLogitsOfEitherSign) {
  const SamplingParameters parameters{.temperature = 0, .repetition_penalty = 1.5};
  const std::vector<int32_t> prompt = {0, 0, 0};  // how often does not matter
  EXPECT_EQ(sample_one(parameters, std::vector<float>{3, 1.9f}, 0, prompt), 0);
  EXPECT_EQ(sample_one(parameters, std::vector<float>{3, 2.1f}, 0, prompt), 1);
  EXPECT_EQ(sample_one(parameters, std::vector<float>{-1, -1.4f}, 0, prompt), 1);
  EXPECT_EQ(sample_one(parameters, std::vector<float>{-1, -1.6f}, 0, prompt), 0);
}

TEST(Sampler, PresenceAndFrequencyCountTheOutputOnly) {
  const std::vector<int32_t> prompt = {0, 0};
  Sampler sampler({.temperature = 0, .presence_penalty = 1, .frequency_penalty = 0.5}, prompt);
  const std::vector<float> logits = {3, 1.1f};
  EXPECT_EQ(*sampler.sample(logits, 0), 0);
  sampler.accept(0);  // 3 - 1 - 0.5
  EXPECT_EQ(*sampler.sample(logits, 1), 0);
  sampler.accept(0);  // 3 - 1 - 1 = 1
  EXPECT_EQ(*sampler.sample(logits, 2), 1);
}

TEST(Sampler, AppliesRepetitionBeforePresence) {
  Sampler sampler({.temperature = 0, .repetition_penalty = 2, .presence_penalty = 1}, {});
  sampler.accept(0);  // 4 / 2 - 1 = 1, not (4 - 1) / 2 = 1.5
  EXPECT_EQ(*sampler.sample(std::vector<float>{4, 1.25f}, 0), 1);
}

TEST(Sampler, AppliesTemperatureBeforeTopP) {
  // At temperature 2 the best token has less than 0.6 of the probability; at 1 it has 0.73.
  const std::vector<float> logits = {1, 0, -20};
  int second = 0;
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(sample_one({.top_p = 0.65}, logits, position), 0);
    second += sample_one({.temperature = 2, .top_p = 0.65}, logits, position) == 1;
  }
  EXPECT_GT(second, 10);
}

TEST(Sampler, NamesTheFieldThatIsOutOfRange) {
  const auto message = [](const SamplingParameters& parameters) {
    const Status status = validate(parameters, 100);
    return status ? std::string("valid") : status.error().message;
  };
  EXPECT_EQ(message({}), "valid");
  EXPECT_EQ(message({.temperature = 2, .top_k = 1000, .top_p = 0, .min_p = 1}), "valid");
  EXPECT_EQ(message({.temperature = -0.1}),
            "temperature: expected a number from 0 to 2, found -0.1");
  EXPECT_EQ(message({.temperature = 2.1}), "temperature: expected a number from 0 to 2, found 2.1");
  EXPECT_EQ(message({.temperature = std::nan("")}),
            "temperature: expected a number from 0 to 2, found nan");
  EXPECT_EQ(message({.top_k = -1}),
            "top_k: expected 0 (all tokens) or a positive number, found -1");
  EXPECT_EQ(message({.top_p = 1.01}), "top_p: expected a number from 0 to 1, found 1.01");
  EXPECT_EQ(message({.min_p = -1}), "min_p: expected a number from 0 to 1, found -1");
  EXPECT_EQ(message({.repetition_penalty = 0}),
            "repetition_penalty: expected a number above 0 and up to 10, found 0");
  EXPECT_EQ(message({.presence_penalty = 3}),
            "presence_penalty: expected a number from -2 to 2, found 3");
  EXPECT_EQ(message({.frequency_penalty = -3}),
            "frequency_penalty: expected a number from -2 to 2, found -3");
  EXPECT_EQ(message({.logit_bias = {{100, 1}}}),
            "logit_bias: expected token ids from 0 to 99, found 100");
  EXPECT_EQ(message({.logit_bias = {{5, 101}}}),
            "logit_bias of token 5: expected a number from -100 to 100, found 101");
}

// Lets only the tokens of a set through; the set depends on what was accepted.
class TestMask final : public TokenMask {
 public:
  std::span<const uint64_t> allowed(std::span<const int32_t> drafts) override {
    supposed.assign(drafts.begin(), drafts.end());
    return words;
  }
  void accept(int32_t token) override { accepted.push_back(token); }

  std::vector<uint64_t> words;
  std::vector<int32_t> accepted, supposed;
};

TEST(Sampler, DrawsOnlyWhatTheMaskAllows) {
  const std::vector<float> logits = ramp(70, 3);
  TestMask mask;
  mask.words = {1ull << 3 | 1ull << 40, 1ull << 5};  // 3, 40 and 69
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature, .logit_bias = {{4, 100.0}}}, {}, 0, &mask);
    for (int position = 0; position < 100; ++position) {
      const int32_t token = *sampler.sample(logits, position);
      EXPECT_TRUE(token == 3 || token == 40 || token == 69) << token;
    }
  }
  Sampler sampler({}, {}, 0, &mask);
  sampler.accept(40);
  EXPECT_EQ(mask.accepted, std::vector<int32_t>{40});
  mask.words = {0, 0};
  EXPECT_FALSE(sampler.sample(logits, 0));  // every token is masked
  mask.words.clear();                       // none is
  EXPECT_TRUE(sampler.sample(logits, 0));
}

TEST(Sampler, SupposesDraftsWithoutTakingThem) {
  const std::vector<float> logits = ramp(70, 3);
  SamplingParameters parameters{.temperature = 0.9, .top_p = 0.95};
  parameters.repetition_penalty = 1.3;
  parameters.presence_penalty = 0.4;
  parameters.frequency_penalty = 0.2;
  const std::vector<int32_t> prompt = {1, 2, 3}, drafts = {2, 9, 9, 66};
  TestMask mask;
  Sampler supposing(parameters, prompt, 0, &mask), taking(parameters, prompt);
  const auto listed = [&](Sampler& sampler, std::span<const int32_t> supposed) {
    const std::span<const float> found = sampler.distribution(logits, supposed)->weights;
    return std::vector<float>(found.begin(), found.end());
  };
  const auto before = listed(supposing, {});
  for (const int32_t token : drafts) taking.accept(token);
  EXPECT_EQ(listed(supposing, drafts), listed(taking, {}));
  EXPECT_EQ(mask.supposed, drafts);
  EXPECT_TRUE(mask.accepted.empty());
  EXPECT_EQ(listed(supposing, {}), before);
}

TEST(Sampler, SamplesFromItsDistribution) {
  const std::vector<float> logits = ramp(70, 3);
  for (const SamplingParameters& parameters :
       {SamplingParameters{}, SamplingParameters{.temperature = 0},
        SamplingParameters{.temperature = 1.4, .top_k = 20, .top_p = 0.8, .min_p = 0.05}}) {
    Sampler sampler(parameters, {});
    for (int position = 0; position < 50; ++position) {
      const int32_t token = *sampler.sample(logits, position);
      EXPECT_EQ(sampler.distribution(logits)->draw(sampler.random(position)), token);
    }
  }
}

class EverythingAllowed final : public TokenMask {
 public:
  std::span<const uint64_t> allowed(std::span<const int32_t>) override { return {}; }
  void accept(int32_t) override {}
};

TEST(Sampler, TakesTheBestWhereNothingChangesTheLogits) {
  const auto takes_best = [](const SamplingParameters& parameters, TokenMask* mask = nullptr) {
    return Sampler(parameters, {}, 0, mask).takes_best();
  };
  EXPECT_TRUE(takes_best({.temperature = 0}));
  EXPECT_TRUE(takes_best({.temperature = 1, .top_k = 1}));
  EXPECT_TRUE(takes_best({.temperature = 1, .top_p = 0}));
  EXPECT_FALSE(takes_best({.temperature = 1}));
  EXPECT_FALSE(takes_best({.temperature = 1, .min_p = 1}));
  EXPECT_FALSE(takes_best({.temperature = 0, .repetition_penalty = 1.1}));
  EXPECT_FALSE(takes_best({.temperature = 0, .presence_penalty = 0.1}));
  EXPECT_FALSE(takes_best({.temperature = 0, .frequency_penalty = -0.1}));
  EXPECT_FALSE(takes_best({.temperature = 0, .logit_bias = {{3, 1.0}}}));
  EverythingAllowed mask;
  EXPECT_FALSE(takes_best({.temperature = 0}, &mask));
}

}  // namespace
}  // namespace cachalot
