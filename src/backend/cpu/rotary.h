// Cosines and sines of one position (ops/attention.h: the rotary embedding).
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/view.h"

namespace cachalot::cpu {

inline constexpr int64_t kMostRotatedPairs = 256;

struct Rotation {
  int64_t pairs = 0;
  float cosine[kMostRotatedPairs];
  float sine[kMostRotatedPairs];
};

// The angle is the FP32 product; its cosine and sine are taken in double, because a float argument
// of a million radians is exact and must be reduced as such. `back`: the inverse rotation.
inline void fill_rotation(View<const float> frequencies, int64_t position, bool back,
                          Rotation& rotation) {
  rotation.pairs = frequencies.elements();
  CACHALOT_CHECK(rotation.pairs <= kMostRotatedPairs, "{} rotated pairs", rotation.pairs);
  for (int64_t i = 0; i < rotation.pairs; ++i) {
    const double angle = static_cast<float>(position) * frequencies.data[i];
    rotation.cosine[i] = static_cast<float>(std::cos(angle));
    rotation.sine[i] = static_cast<float>(back ? -std::sin(angle) : std::sin(angle));
  }
}

}  // namespace cachalot::cpu
