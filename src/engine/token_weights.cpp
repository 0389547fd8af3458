#include "engine/token_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace cachalot {
namespace {

// Compiled for AVX2 as well, for a processor that has it: half the instructions. It is without
// fused multiply-adds, so that the bits are the same.
#if defined(__x86_64__)
#define CACHALOT_FOR_WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define CACHALOT_FOR_WIDE_VECTORS
#endif

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();
constexpr double kSmallestLogWeight = -44.36;  // ln 2^-64
// More than what a weight's logarithm is off by.
constexpr double kSlack = 1e-3;
// exp(x) for -88 < x <= 0 with a relative error below 2^-22: 2^n times a polynomial in the rest
// (Taylor's to the sixth degree; |rest| <= ln 2 / 2). Unlike std::exp it has no branch, so that a
// loop over a block is vectorised.
float exp_of_nonpositive(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float n = (x * kLog2E + kToInteger) - kToInteger;
  const float rest = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0f / 720;
  for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    sum = sum * rest + coefficient;
  return sum * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// Without a branch.
float kept_or_zero(float weight, bool kept) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(weight) & -static_cast<uint32_t>(kept));
}

// The best logit of every block of `block`; false: there is NaN or +inf. A comparison of floats is
// not vectorised unless it is written so: it might trap.
CACHALOT_FOR_WIDE_VECTORS
bool find_maxima(std::span<const float> logits, size_t block, std::span<float> maxima) {
  constexpr size_t kFloats = 8;
  using Floats [[gnu::vector_size(kFloats * sizeof(float))]] = float;
  using Masks [[gnu::vector_size(kFloats * sizeof(int32_t))]] = int32_t;
  Masks usable = ~Masks{};
  for (size_t b = 0; b < maxima.size(); ++b) {
    const size_t end = std::min(logits.size(), (b + 1) * block);
    Floats best = Floats{} - kInfinity;
    size_t i = b * block;
    for (; i + kFloats <= end; i += kFloats) {
      Floats values;
      std::memcpy(&values, logits.data() + i, sizeof values);
      usable &= values < kInfinity;
      best = values > best ? values : best;
    }
    for (; i < end; ++i) {
      usable[0] &= -static_cast<int32_t>(logits[i] < kInfinity);
      best[0] = std::max(best[0], logits[i]);
    }
    maxima[b] = best[0];
    for (size_t lane = 1; lane < kFloats; ++lane) maxima[b] = std::max(maxima[b], best[lane]);
  }
  int32_t all = usable[0];
  for (size_t lane = 1; lane < kFloats; ++lane) all &= usable[lane];
  return all != 0;
}

// Of logits from the threshold on the weights, of others 0. Returns their sum.
CACHALOT_FOR_WIDE_VECTORS
double put_weights(const float* logits, float* weights, int64_t count, double best, double scale,
                   float threshold) {
  for (int64_t i = 0; i < count; ++i) {
    const bool kept = logits[i] >= threshold;
    // Below the threshold it may be out of the function's range, or infinite.
    const float exponent =
        kept_or_zero(static_cast<float>((double{logits[i]} - best) * scale), kept);
    weights[i] = kept_or_zero(exp_of_nonpositive(exponent), kept);
  }
  return sum_of_weights(weights, count);
}

}  // namespace

TokenWeights& TokenWeights::of_this_thread() {
  thread_local TokenWeights weights;
  return weights;
}

Status TokenWeights::start(std::span<const float> logits) {
  logits_ = logits;
  const auto blocks = (std::ssize(logits) + kWeightBlock - 1) / kWeightBlock;
  maxima_.resize(static_cast<size_t>(blocks));
  const bool usable = find_maxima(logits, kWeightBlock, maxima_);
  if (!usable) {
    const auto bad = std::ranges::find_if(logits, [](float v) { return !(v < kInfinity); });
    return fail(
        "the logit of token {} is {}: expected finite numbers, or -inf for masked tokens; "
        "the weights are damaged or a computation overflowed",
        bad - logits.begin(), *bad);
  }
  best_ = maxima_.empty() ? -kInfinity : *std::ranges::max_element(maxima_);
  if (best_ == -kInfinity) {
    return fail("every token is masked: all {} logits are -inf", logits.size());
  }
  last_ = {std::numeric_limits<float>::lowest(), kLastId};
  return {};
}

int32_t TokenWeights::best_token() const {
  const auto block = std::ranges::find(maxima_, best_) - maxima_.begin();
  const auto found = std::find(logits_.begin() + block * kWeightBlock, logits_.end(), best_);
  return static_cast<int32_t>(found - logits_.begin());
}

// The count-th best of the blocks' maxima, if there are so many, is a bound: as many tokens are at
// least as good.
void TokenWeights::keep_best(int64_t count) {
  if (count >= std::ssize(logits_)) return;
  float bound = last_.logit;
  if (count <= std::ssize(maxima_)) {
    std::vector<float> maxima = maxima_;
    const auto nth = maxima.begin() + (count - 1);
    std::ranges::nth_element(maxima, nth, std::greater());
    bound = std::max(bound, *nth);
  }
  selection_.clear();
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < bound) continue;
    const WeightBlock block = block_at(static_cast<int32_t>(b));
    for (int64_t i = block.first; i < block.first + block.count; ++i)
      if (logits_[i] >= bound) selection_.push_back({logits_[i], static_cast<int32_t>(i)});
  }
  if (count > std::ssize(selection_)) return;  // the others are masked
  const auto last = selection_.begin() + (count - 1);
  std::ranges::nth_element(selection_, last, ranks_before);
  last_ = *last;
}

void TokenWeights::weigh(double temperature, double least) {
  temperature_ = temperature;
  const double log_least =
      least > 0 ? std::max(std::log(least) - kSlack, kSmallestLogWeight) : kSmallestLogWeight;
  const double lowest = best_ + log_least * temperature;
  if (lowest > last_.logit) last_ = {static_cast<float>(lowest), kLastId};
  const double scale = 1 / temperature;
  const float threshold = last_.logit;
  weights_.resize(logits_.size());
  kept_.clear();
  sums_.clear();
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < threshold) continue;
    const WeightBlock block = block_at(static_cast<int32_t>(b));
    kept_.push_back(static_cast<int32_t>(b));
    sums_.push_back(put_weights(logits_.data() + block.first, weights_.data() + block.first,
                                block.count, best_, scale, threshold));
  }
  if (last_.id != kLastId) drop_behind(last_);
}

template <class Keeps>
void TokenWeights::keep_where(Keeps keeps) {
  for (size_t k = 0; k < kept_.size(); ++k) {
    const WeightBlock block = block_at(kept_[k]);
    const float* logits = logits_.data() + block.first;
    float* weights = weights_.data() + block.first;
    const auto first = static_cast<int32_t>(block.first), count = static_cast<int32_t>(block.count);
    for (int32_t i = 0; i < count; ++i)
      weights[i] = kept_or_zero(weights[i], keeps(logits[i], first + i, weights[i]));
    sums_[k] = sum_of_weights(weights, block.count);
  }
}

void TokenWeights::drop_behind(const Rank& last) {
  last_ = last;
  keep_where([last](float logit, int32_t id, float) {
    return static_cast<int>(logit > last.logit) |
           (static_cast<int>(logit == last.logit) & static_cast<int>(id <= last.id));
  });
}

void TokenWeights::put_bins(const WeightBlock& block,
                            std::array<int32_t, kWeightBlock>& bins) const {
  const float* logits = logits_.data() + block.first;
  for (int64_t i = 0; i < block.count; ++i) {
    const float place = (best_ - logits[i]) * bin_scale_;
    const auto bin = static_cast<int32_t>(place < kBins ? place : kBins);
    bins[i] = bin + static_cast<int32_t>(bin == kBins) * static_cast<int32_t>(i % kSpareBins);
  }
}

// The order of ranks without sorting them: a histogram over the logits, best first. The cut falls
// into one bin, and only that bin's members need to be ordered.
void TokenWeights::keep_share(double share) {
  const double all = total(), goal = share * all;
  // Tokens below this weight have less than the rest in all: the others reach the goal without
  // them, and what is worse than they are goes to the last bin, or is not counted.
  const double least = (1 - share) * all / static_cast<double>(std::ssize(kept_) * kWeightBlock);
  const double worst =
      std::max(best_ + (std::log(least) - kSlack) * temperature_, double{last_.logit});
  bin_scale_ = best_ > worst ? static_cast<float>((kBins - 1) / (best_ - worst)) : 0;
  amounts_.assign(kBins + kSpareBins, 0);
  std::array<int32_t, kWeightBlock> bins;
  for (const int32_t b : kept_) {
    if (maxima_[static_cast<size_t>(b)] < worst) continue;
    const WeightBlock block = block_at(b);
    put_bins(block, bins);
    const float* weights = weights_.data() + block.first;
    for (int64_t i = 0; i < block.count; ++i) amounts_[bins[i]] += double{weights[i]};
  }
  // The bin at whose end the goal is reached; rounding may leave the sum below it.
  int32_t bin = 0;
  double sum = 0;
  for (; bin < kBins - 1 && sum + amounts_[bin] < goal; ++bin) sum += amounts_[bin];
  selection_.clear();
  for (const int32_t b : kept_) {
    if (maxima_[static_cast<size_t>(b)] < worst) continue;
    const WeightBlock block = block_at(b);
    put_bins(block, bins);
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t id = block.first + i;
      if (bins[i] == bin && weights_[id] > 0)
        selection_.push_back({logits_[id], static_cast<int32_t>(id)});
    }
  }
  if (selection_.empty()) return;
  std::ranges::sort(selection_, ranks_before);
  auto last = selection_.begin();
  for (sum += weights_[last->id]; sum < goal && last + 1 != selection_.end();
       sum += weights_[last->id])
    ++last;
  drop_behind(*last);
}

void TokenWeights::keep_heaviest(double weight) {
  keep_where([weight](float, int32_t, float own) { return double{own} >= weight; });
}

double TokenWeights::total() const {
  double total = 0;
  for (const double sum : sums_) total += sum;
  return total;
}

int32_t TokenWeights::draw(double random) const {
  WeightSearch search(random * total());
  for (size_t k = 0; k < kept_.size() && search.add(block_at(kept_[k]), sums_[k]); ++k) {
  }
  const int32_t token = search.token(weights_);
  CACHALOT_CHECK(token >= 0, "the best token has weight above 0");
  return token;
}

void TokenWeights::put(std::vector<float>& weights) const {
  weights.assign(logits_.size(), 0);
  for (const int32_t b : kept_) {
    const WeightBlock block = block_at(b);
    std::copy_n(weights_.begin() + block.first, block.count, weights.begin() + block.first);
  }
}

}  // namespace cachalot
