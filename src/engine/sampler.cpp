#include "engine/sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/random.h"

namespace cachalot {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Status check_range(const char* field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return fail("{}: expected a number from {} to {}, found {}", field, least, most, value);
}

}  // namespace

Status validate(const SamplingParameters& parameters, int64_t vocab_size) {
  CACHALOT_OK(check_range("temperature", parameters.temperature, 0, 2));
  CACHALOT_OK(check_range("top_p", parameters.top_p, 0, 1));
  CACHALOT_OK(check_range("min_p", parameters.min_p, 0, 1));
  CACHALOT_OK(check_range("presence_penalty", parameters.presence_penalty, -2, 2));
  CACHALOT_OK(check_range("frequency_penalty", parameters.frequency_penalty, -2, 2));
  if (!(parameters.repetition_penalty > 0 && parameters.repetition_penalty <= 10))
    return fail("repetition_penalty: expected a number above 0 and up to 10, found {}",
                parameters.repetition_penalty);
  if (parameters.top_k < 0)
    return fail("top_k: expected 0 (all tokens) or a positive number, found {}", parameters.top_k);
  for (const auto& [token, bias] : parameters.logit_bias) {
    if (token < 0 || token >= vocab_size)
      return fail("logit_bias: expected token ids from 0 to {}, found {}", vocab_size - 1, token);
    CACHALOT_OK(check_range(fmt::format("logit_bias of token {}", token).c_str(), bias, -100, 100));
  }
  return {};
}

Sampler::Sampler(SamplingParameters parameters, std::span<const int32_t> prompt, uint32_t choice,
                 TokenMask* mask)
    : parameters_(std::move(parameters)),
      choice_(choice),
      mask_(mask),
      penalties_(parameters_.repetition_penalty != 1 || parameters_.presence_penalty != 0 ||
                 parameters_.frequency_penalty != 0) {
  if (penalties_)
    for (const int32_t token : prompt) seen_.try_emplace(token, 0);
}

void Sampler::accept(int32_t token) {
  if (penalties_) ++seen_[token];
  if (mask_ != nullptr) mask_->accept(token);
}

bool Sampler::takes_best() const {
  return parameters_.greedy() && parameters_.logit_bias.empty() && !penalties_ && mask_ == nullptr;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, int64_t position) {
  TokenWeights& weights = TokenWeights::of_this_thread();
  CACHALOT_OK(weights.start(adjust(logits, {})));
  if (parameters_.greedy()) return weights.best_token();
  weigh(weights);
  return weights.draw(random(position));
}

Result<TokenDistribution> Sampler::distribution(std::span<const float> logits,
                                                std::span<const int32_t> drafts) {
  TokenWeights& weights = TokenWeights::of_this_thread();
  CACHALOT_OK(weights.start(adjust(logits, drafts)));
  if (parameters_.greedy()) {
    distribution_.assign(logits.size(), 0);
    distribution_[static_cast<size_t>(weights.best_token())] = 1;
    return TokenDistribution{distribution_, 1};
  }
  weigh(weights);
  weights.put(distribution_);
  return TokenDistribution{distribution_, weights.total()};
}

void Sampler::weigh(TokenWeights& weights) const {
  if (parameters_.top_k > 0) weights.keep_best(parameters_.top_k);
  // What top-p leaves depends on all weights.
  weights.weigh(parameters_.temperature, parameters_.top_p < 1 ? 0 : parameters_.min_p);
  if (parameters_.top_p < 1) weights.keep_share(parameters_.top_p);
  if (parameters_.min_p > 0) weights.keep_heaviest(parameters_.min_p);
}

// Bias and penalties touch few tokens; without any of these the row is used in place.
std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       std::span<const int32_t> drafts) {
  const bool penalized = penalties_ && !(seen_.empty() && drafts.empty());
  if (parameters_.logit_bias.empty() && !penalized && mask_ == nullptr) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : parameters_.logit_bias)
    adjusted_[token] += static_cast<float>(bias);
  if (penalized) {
    const auto times_drafted = [&](int32_t token) { return std::ranges::count(drafts, token); };
    for (const auto& [token, times] : seen_) penalize(token, times + times_drafted(token));
    for (size_t i = 0; i < drafts.size(); ++i) {
      const bool again = std::ranges::find(drafts.first(i), drafts[i]) != drafts.begin() + i;
      if (!again && !seen_.contains(drafts[i])) penalize(drafts[i], times_drafted(drafts[i]));
    }
  }
  if (mask_ != nullptr) apply_mask(drafts);
  return adjusted_;
}

void Sampler::penalize(int32_t token, int64_t times) {
  double logit = adjusted_[token];
  logit =
      logit > 0 ? logit / parameters_.repetition_penalty : logit * parameters_.repetition_penalty;
  if (times > 0)
    logit -=
        parameters_.presence_penalty + static_cast<double>(times) * parameters_.frequency_penalty;
  adjusted_[token] = static_cast<float>(logit);
}

void Sampler::apply_mask(std::span<const int32_t> drafts) {
  const std::span<const uint64_t> allowed = mask_->allowed(drafts);
  if (allowed.empty()) return;
  CACHALOT_CHECK(allowed.size() == (adjusted_.size() + 63) / 64, "a mask of {} words for {} tokens",
                 allowed.size(), adjusted_.size());
  // Most words are all zeros where little may follow, all ones in free text.
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == ~uint64_t{0}) continue;
    const size_t first = word * 64, count = std::min<size_t>(64, adjusted_.size() - first);
    for (size_t i = 0; i < count; ++i)
      if ((allowed[word] >> i & 1) == 0) adjusted_[first + i] = -kInfinity;
  }
}

}  // namespace cachalot
