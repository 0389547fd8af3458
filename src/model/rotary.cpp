#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cachalot {

std::vector<float> rope_frequencies(int64_t dim, double base, int64_t original_seq_len,
                                    double factor, double beta_fast, double beta_slow) {
  std::vector<float> frequencies(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    frequencies[i] = 1.0f / static_cast<float>(
                                std::pow(static_cast<float>(base), static_cast<double>(exponent)));
  }
  if (original_seq_len <= 0) return frequencies;

  // The pair whose wavelength makes `turns` turns over the original length.
  const auto pair_of = [&](double turns) {
    const double length = static_cast<double>(original_seq_len);
    return static_cast<double>(dim) * std::log(length / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(beta_slow)), static_cast<double>(dim - 1));
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double ramp = (static_cast<double>(i) - low) / std::max(high - low, 1e-3);
    const float keep = 1.0f - static_cast<float>(std::clamp(ramp, 0.0, 1.0));
    const float slow = frequencies[i] / static_cast<float>(factor);
    frequencies[i] = slow * (1.0f - keep) + frequencies[i] * keep;
  }
  return frequencies;
}

}  // namespace cachalot
