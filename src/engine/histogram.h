// Counts of values between fixed bounds, as monitoring systems collect them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace cachalot {

class Histogram {
 public:
  // `bounds` ascend; a value belongs to the first bound that is not below it.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}

  void add(double value) {
    const auto place = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
    ++counts_[static_cast<size_t>(place)];
    sum_ += value;
  }

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<int64_t>& counts() const { return counts_; }  // the last one: above all bounds
  double sum() const { return sum_; }
  int64_t count() const {
    int64_t total = 0;
    for (const int64_t count : counts_) total += count;
    return total;
  }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

}  // namespace cachalot
