// The extent of a dense row-major tensor, at most four dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace cachalot {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    CACHALOT_CHECK(extents.size() <= kMaxRank, "{} dimensions", extents.size());
    for (int64_t extent : extents) extents_[rank_++] = extent;
  }

  int rank() const { return rank_; }
  int64_t operator[](int dimension) const { return extents_[dimension]; }
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= extents_[i];
    return product;
  }
  bool operator==(const Shape&) const = default;

  // "[4, 128]"
  std::string text() const {
    std::string out = "[";
    for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string(extents_[i]);
    return out + "]";
  }

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> extents_{};
};

}  // namespace cachalot
