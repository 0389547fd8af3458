// Sixteen lines of sixteen floats, transposed in registers (AVX-512).
#pragma once

#include "backend/cpu/kernels/simd.h"

namespace cachalot::cpu {
namespace {

// Element j of line i becomes element i of line j.
CACHALOT_INLINE void transpose(F32 (&lines)[16]) {
  // Interleaving twice brings four lines' elements together, then the 128-bit lanes are exchanged.
  __m512 a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(lines[i], lines[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(lines[i], lines[i + 1]);
  }
  __m512 b[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const auto pairs = [](__m512 v) { return _mm512_castps_pd(v); };
    b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs(a[i]), pairs(a[i + 2])));
    b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs(a[i]), pairs(a[i + 2])));
    b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs(a[i + 1]), pairs(a[i + 3])));
    b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs(a[i + 1]), pairs(a[i + 3])));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    const __m512 high = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xDD);
    const __m512 low2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const __m512 high2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xDD);
    lines[j] = _mm512_shuffle_f32x4(low, low2, 0x88);
    lines[4 + j] = _mm512_shuffle_f32x4(high, high2, 0x88);
    lines[8 + j] = _mm512_shuffle_f32x4(low, low2, 0xDD);
    lines[12 + j] = _mm512_shuffle_f32x4(high, high2, 0xDD);
  }
}

}  // namespace
}  // namespace cachalot::cpu
