// Rows of activations quantized to E4M3 with a power of two per 32 columns (spec: model, 2.2), as
// FP8 matrix products read them.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

struct QuantizedRows {
  int64_t rows = 0, columns = 0;  // columns: a multiple of 32
  uint8_t* codes = nullptr;       // [rows, columns] E4M3
  // [blocks of 128 columns, scale_stride >= rows] four E8M0 codes each, the first 32 columns' in
  // the low byte: a block of columns' scales of neighbouring rows lie side by side, so that one
  // copy brings them.
  uint32_t* scales = nullptr;
  int64_t scale_stride = 0;

  // Not written yet; kernels may read up to `scale_stride` scales of a block.
  static QuantizedRows allocate(Scratch& scratch, int64_t rows, int64_t columns);
};

// x [rows, columns], at a multiple of 16 bytes.
QuantizedRows quantize_rows(Queue& queue, Scratch& scratch, const bf16* x, int64_t rows,
                            int64_t columns);

}  // namespace cachalot::cuda
