// rms_norm over rows of BF16 that a product has written, in place.
#pragma once

#include <cstdint>

#include "backend/cuda/quantize_fp8.h"

namespace cachalot::cuda {

// y [rows, width] = RNE_BF16(norm * (y / sqrt(mean(y^2) + eps)))
struct NormedRows {
  bf16* y;
  const bf16* norm;
  int64_t rows, width;
  float eps;
};

void normalize_rows(Queue& queue, const NormedRows& of);
// Both in one kernel, which quantizes the rows of the first too, if `quantized` has codes, and
// computes the coefficients of `mixes`, if there are any: their sums are made
// (start_sums_beside()).
struct Mixes;
void normalize_rows(Queue& queue, const NormedRows& first, const NormedRows& second,
                    const QuantizedRows& quantized, const Mixes* mixes);
bool quantizes_normed(const NormedRows& of);

}  // namespace cachalot::cuda
