#include "engine/draft_depth.h"

#include <algorithm>
#include <cmath>

namespace cachalot {
namespace {

// Weight of the newest observation.
constexpr double kNewest = 0.15;
// Share of the time that drafts may lose in trying whether they pay by now.
constexpr double kTryingShare = 0.02;
constexpr double kOptimisticHitRate = 0.7;
// Where times must not count: drafts are checked while they survive with this probability, and are
// tried in every so many cycles only when the first one hits less often than this.
constexpr double kWorthARow = 0.4, kHopelessHitRate = 0.2;
constexpr int64_t kTryingCycles = 8;

double probability(float log_odds) {
  return 1.0 / (1.0 + std::exp(-static_cast<double>(log_odds)));
}

}  // namespace

void StepCosts::update(Seconds& known, int64_t size, double seconds) {
  const auto [at, added] = known.emplace(size, seconds);
  // An interruption of the process makes one step long, not the machine slow.
  if (!added) at->second += kNewest * (std::min(seconds, 3 * at->second) - at->second);
}

double StepCosts::estimate(const Seconds& known, int64_t size) {
  if (known.empty()) return 0;
  const auto above = known.lower_bound(size);
  if (above != known.end() && above->first == size) return above->second;
  if (known.size() == 1) {
    // A row more costs less than a step: its weights are read already.
    const auto& [only, seconds] = *known.begin();
    return seconds * (1 + 0.15 * static_cast<double>(size - only) / static_cast<double>(only));
  }
  auto high = above == known.end() ? std::prev(known.end()) : above;
  if (high == known.begin()) ++high;
  const auto low = std::prev(high);
  const double slope =
      std::max(0.0, (high->second - low->second) / static_cast<double>(high->first - low->first));
  return low->second + slope * static_cast<double>(size - low->first);
}

DraftDepth::DraftDepth(const DraftParameters& parameters, int64_t block)
    : parameters_(parameters),
      block_(block),
      calibration_(static_cast<size_t>(block), 1.0),
      hit_rate_(static_cast<size_t>(block), kOptimisticHitRate),
      observations_(static_cast<size_t>(block), 1) {}

bool DraftDepth::wants_draft(const StepCosts& costs, int64_t other_rows) const {
  if (parameters_.mode == DraftMode::off || block_ == 0) return false;
  if (parameters_.mode == DraftMode::fixed) return true;
  if (parameters_.method == DraftMethod::probabilistic) {
    return hit_rate_[0] >= kHopelessHitRate || cycles_ % kTryingCycles == 0;
  }
  // First what a plain step costs, then what a drafted one does.
  if (!costs.has_measured_step(other_rows + 1)) return false;
  if (costs.draft(1) == 0) return true;
  if (balance_ + kTryingShare * total_ > costs.draft(1)) return true;
  // The best depth by the recent hit rates alone.
  const double plain = 1 / costs.step(other_rows + 1);
  double tokens = 1, reached = 1;
  for (int64_t k = 1; k <= block_; ++k) {
    reached *= hit_rate_[static_cast<size_t>(k - 1)];
    tokens += reached;
    if (tokens / (costs.draft(1) + costs.step(other_rows + 1 + k)) > plain) return true;
  }
  return false;
}

double DraftDepth::survival(std::span<const float> confidence, int64_t position) const {
  const auto i = static_cast<size_t>(position);
  return std::clamp(probability(confidence[i]) * calibration_[i], 0.0, 0.999);
}

// A place's confidence knows the drafts before it, not its own: the first that is not worth a row
// ends the block without a look at any later one.
int64_t DraftDepth::confident_places(std::span<const float> confidence) const {
  double reached = 1;
  for (int64_t k = 0; k < block_; ++k) {
    reached *= survival(confidence, k);
    if (reached < kWorthARow) return k;
  }
  return block_;
}

int64_t DraftDepth::choose(std::span<const float> confidence, const StepCosts& costs,
                           int64_t other_rows) const {
  if (parameters_.mode == DraftMode::fixed) return most();
  if (parameters_.method == DraftMethod::probabilistic) return confident_places(confidence);
  if (!costs.has_measured_step(other_rows + 1 + block_)) return block_;
  // The draft is paid for already: what counts is the step.
  double tokens = 1, reached = 1, best_rate = 1 / costs.step(other_rows + 1);
  int64_t best = 0;
  for (int64_t k = 1; k <= block_; ++k) {
    reached *= survival(confidence, k - 1);
    tokens += reached;
    const double rate = tokens / costs.step(other_rows + 1 + k);
    if (rate > best_rate) {
      best_rate = rate;
      best = k;
    }
  }
  return best;
}

void DraftDepth::record(std::span<const float> confidence, int64_t drafted, int64_t accepted,
                        double seconds, double plain_seconds) {
  total_ += seconds;
  ++cycles_;
  if (confidence.empty()) return;
  const double gain = static_cast<double>(accepted + 1) * plain_seconds - seconds;
  saved_ += gain;
  balance_ = std::min(0.0, balance_ + gain);
  for (int64_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const auto at = static_cast<size_t>(i);
    const double hit = i < accepted ? 1 : 0;
    // The first observations count as much as they are worth beside the prior's single one.
    const double weight = std::max(kNewest, 1.0 / static_cast<double>(++observations_[at]));
    hit_rate_[at] += weight * (hit - hit_rate_[at]);
    const double promised = std::max(probability(confidence[at]), 0.05);
    calibration_[at] =
        std::clamp(calibration_[at] + 0.5 * weight * (hit / promised - calibration_[at]), 0.2, 1.5);
  }
  // Not one draft was worth its row: as good as a miss.
  if (drafted == 0) hit_rate_[0] -= kNewest * hit_rate_[0];
}

}  // namespace cachalot
