// rms_norm over rows of BF16 that a product has written, in place.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// y [rows, width] = RNE_BF16(norm * (y / sqrt(mean(y^2) + eps)))
struct NormedRows {
  bf16* y;
  const bf16* norm;
  int64_t rows, width;
  float eps;
};

void normalize_rows(Queue& queue, const NormedRows& of);
// In one kernel, which computes the coefficients of `mixes` too, if there are any: their sums are
// made (start_sums_beside()).
struct Mixes;
void normalize_rows(Queue& queue, const NormedRows& first, const NormedRows& second,
                    const Mixes* mixes);

}  // namespace cachalot::cuda
