// Frequencies of the rotary embedding (spec: model, 4.1).
#pragma once

#include <cstdint>
#include <vector>

namespace cachalot {

// Angle per position of each of the dim / 2 rotated pairs: base^(-2i / dim). With
// original_seq_len > 0 blended by YaRN: pairs that turn at least beta_fast times over the original
// length keep their frequency, those that turn at most beta_slow times divide it by `factor`, a
// linear ramp lies between. FP32 in the steps of the reference; logarithms in double.
std::vector<float> rope_frequencies(int64_t dim, double base, int64_t original_seq_len,
                                    double factor, double beta_fast, double beta_slow);

}  // namespace cachalot
