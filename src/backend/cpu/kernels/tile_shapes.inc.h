// The tile registers of AMX as the kernels use them.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/simd.h"

namespace cachalot::cpu {
namespace {

// GCC 12's intrinsics do not say that they read memory: nothing may be stored later than written.
CACHALOT_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

// The tile registers' shapes, as ldtilecfg reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Sums 0..3 (rows 0-15 then 16-31, tokens of the first then of the second tile), weights 4 and 5,
// activations 6 and 7. `width` tokens in each of the two activation tiles, 0: none.
void shape_tiles(int64_t first_width, int64_t second_width) {
  TileShapes shapes;
  const int64_t widths[2] = {first_width, second_width ? second_width : 1};
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = 16;
    shapes.row_bytes[i] = i == 4 || i == 5 ? 64 : static_cast<uint16_t>(widths[i % 2] * 4);
  }
  finish_stores();
  _tile_loadconfig(&shapes);
}

}  // namespace
}  // namespace cachalot::cpu
