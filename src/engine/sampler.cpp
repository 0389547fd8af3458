#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "engine/random.h"

namespace cachalot {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kSmallestLogWeight = -44.36;  // ln 2^-64

Status check_range(const char* field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return fail("{}: expected a number from {} to {}, found {}", field, least, most, value);
}

struct RowScan {
  float best = -kInfinity;
  int32_t id = -1;  // of the first token with the best logit
};

// Two branch-free passes, which the compiler vectorises, and a search for the winner.
Result<RowScan> scan(std::span<const float> logits) {
  uint32_t unusable = 0;
  float best = -kInfinity;
  for (const float logit : logits) {
    unusable |= static_cast<uint32_t>(!(logit < kInfinity));
    best = logit > best ? logit : best;
  }
  if (unusable) {
    const auto bad = std::find_if(logits.begin(), logits.end(),
                                  [](float logit) { return !(logit < kInfinity); });
    return fail(
        "the logit of token {} is {}: expected finite numbers, or -inf for masked tokens; "
        "the weights are damaged or a computation overflowed",
        bad - logits.begin(), *bad);
  }
  if (best == -kInfinity)
    return fail("every token is masked: all {} logits are -inf", logits.size());
  const auto first = std::find(logits.begin(), logits.end(), best);
  return RowScan{best, static_cast<int32_t>(first - logits.begin())};
}

// exp(x) for -88 < x <= 0 with a relative error below 2^-22: 2^n times a polynomial in the rest
// (Taylor's to the sixth degree; |rest| <= ln 2 / 2). Unlike std::exp it has no branch, so that a
// loop over the vocabulary is vectorised.
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

// std::erase_if of the opposite without a branch per element.
template <class Element, class Keep>
void keep_if(std::vector<Element>& elements, Keep keep) {
  size_t count = 0;
  for (const Element element : elements) {
    elements[count] = element;
    count += keep(element);
  }
  elements.resize(count);
}

// The candidates' order without sorting them: a histogram over the logits, best first. A cut by
// number or by weight falls into one bin, and only that bin's members need to be ordered.
class RankHistogram {
 public:
  static constexpr int kBins = 2048;

  RankHistogram(float best, float worst)
      : best_(best), scale_(best > worst ? (kBins - 1) / double{best - worst} : 0) {}

  int bin(float logit) const { return static_cast<int>((best_ - logit) * scale_); }
  void add(float logit, double amount) { amounts_[bin(logit)] += amount; }

  // The first bin at whose end the amounts reach `goal`, and the amount before it.
  std::pair<int, double> reach(double goal) const {
    double before = 0;
    for (int bin = 0; bin < kBins; ++bin) {
      if (before + amounts_[bin] >= goal) return {bin, before};
      before += amounts_[bin];
    }
    return {kBins - 1, before - amounts_[kBins - 1]};  // rounding left the sum below the goal
  }

 private:
  float best_;
  double scale_;
  std::vector<double> amounts_ = std::vector<double>(kBins);
};

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
  logits = adjust(logits, {});
  CACHALOT_TRY(const RowScan row, scan(logits));
  if (parameters_.greedy()) return row.id;
  keep_candidates(logits, row.best);
  return TokenDistribution{candidates_, total_weight()}.draw(random(position));
}

Result<TokenDistribution> Sampler::distribution(std::span<const float> logits,
                                                std::span<const int32_t> drafts) {
  logits = adjust(logits, drafts);
  CACHALOT_TRY(const RowScan row, scan(logits));
  if (parameters_.greedy()) {
    candidates_.assign(1, {.logit = row.best, .id = row.id, .weight = 1});
  } else {
    keep_candidates(logits, row.best);
  }
  return TokenDistribution{candidates_, total_weight()};
}

void Sampler::keep_candidates(std::span<const float> logits, float best) {
  gather(logits, best);
  if (parameters_.top_k > 0) keep_top_k(best);
  const double scale = 1 / parameters_.temperature;
  for (Candidate& candidate : candidates_)
    candidate.weight =
        exp_of_nonpositive(static_cast<float>((double{candidate.logit} - best) * scale));
  if (parameters_.top_p < 1) keep_top_p(best);
  if (parameters_.min_p > 0) keep_min_p();
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
  for (size_t id = 0; id < adjusted_.size(); ++id)
    if ((allowed[id / 64] >> (id % 64) & 1) == 0) adjusted_[id] = -kInfinity;
}

void Sampler::gather(std::span<const float> logits, float best) {
  const double least = best + kSmallestLogWeight * parameters_.temperature;
  const float threshold = std::max(static_cast<float>(least), std::numeric_limits<float>::lowest());
  candidates_.resize(logits.size() +
                     1);  // the slot behind the last is written before it is decided
  size_t count = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    candidates_[count] = {logits[id], static_cast<int32_t>(id), 0};
    count += logits[id] >= threshold;
  }
  candidates_.resize(count);
}

void Sampler::keep_up_to(const Candidate& last) {
  keep_if(candidates_, [last](const Candidate& c) { return !ranks_before(last, c); });
}

void Sampler::keep_top_k(float best) {
  const auto k = static_cast<size_t>(parameters_.top_k);
  if (k >= candidates_.size()) return;
  RankHistogram histogram(best, worst_candidate());
  for (const Candidate& candidate : candidates_) histogram.add(candidate.logit, 1);
  const auto [bin, before] = histogram.reach(static_cast<double>(k));
  selection_.clear();
  for (const Candidate& candidate : candidates_)
    if (histogram.bin(candidate.logit) == bin) selection_.push_back(candidate);
  const auto last =
      selection_.begin() + static_cast<ptrdiff_t>(k - static_cast<size_t>(before) - 1);
  std::nth_element(selection_.begin(), last, selection_.end(), ranks_before);
  keep_up_to(*last);
}

void Sampler::keep_top_p(float best) {
  const double total = total_weight();
  const double goal = parameters_.top_p * total;
  // Tokens below this weight have less than 1 - top_p in all: the others reach the goal without
  // them.
  const double least = (1 - parameters_.top_p) * total / static_cast<double>(candidates_.size());
  keep_if(candidates_, [least](const Candidate& c) { return c.weight >= least; });
  RankHistogram histogram(best, worst_candidate());
  for (const Candidate& candidate : candidates_) histogram.add(candidate.logit, candidate.weight);
  auto [bin, sum] = histogram.reach(goal);
  selection_.clear();
  for (const Candidate& candidate : candidates_)
    if (histogram.bin(candidate.logit) == bin) selection_.push_back(candidate);
  if (selection_.empty()) return;  // the last bin, past all candidates: everything stays
  std::sort(selection_.begin(), selection_.end(), ranks_before);
  auto last = selection_.begin();
  for (sum += last->weight; sum < goal && last + 1 != selection_.end(); sum += last->weight) ++last;
  keep_up_to(*last);
}

void Sampler::keep_min_p() {
  keep_if(candidates_,
          [least = parameters_.min_p](const Candidate& c) { return c.weight >= least; });
}

float Sampler::worst_candidate() const {
  float worst = kInfinity;
  for (const Candidate& candidate : candidates_) worst = std::min(worst, candidate.logit);
  return worst;
}

double Sampler::total_weight() const {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  return total;
}

}  // namespace cachalot
