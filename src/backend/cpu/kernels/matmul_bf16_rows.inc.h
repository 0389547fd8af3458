// Weight rows as the BF16 dot product takes them: a block of 32 columns to a register (FP4:
// matmul_bf16_fp4.inc.h).
//
// A row is a pointer (RowCodes). decode() takes one or two blocks, the row's first ones, with a
// Shared: what these blocks of all rows in the same scale tile have in common. Unless the weight
// takes the scales, scale() is what a block's product lacks.
#pragma once

#include "backend/cpu/kernels/matmul_bf16_decode.inc.h"
#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

using Pairs = __m512bh;  // 32 BF16 values

CACHALOT_INLINE Pairs load_pairs(const void* p) { return (Pairs)_mm512_loadu_si512(p); }

// Where a block's scale is multiplied: in the weights' exponents; in the input's, which gives the
// same bits where takes_scales() says so and is less work for few tokens; or in the block's sums.
enum class Scaling { weights, input, sums };

// ------------------------------------------------------------------------------------------- BF16

struct Bf16Row : RowCodes<64> {
  static constexpr bool kScaled = false, kSharesScales = false;

  template <int>
  struct Shared {
    Shared(const float*, int64_t) {}
  };

  using RowCodes::RowCodes;
  static bool folds(const PackedWeight&, int64_t, int64_t) { return true; }
  static bool moves(const PackedWeight&, int64_t, int64_t) { return false; }
  template <Scaling, int kBlocks>
  CACHALOT_INLINE_MEMBER void decode(const Shared<kBlocks>&, Pairs* out) const {
    for (int i = 0; i < kBlocks; ++i) out[i] = load_pairs(at(i));
  }
};

// -------------------------------------------------------------------------------------------- FP8

struct Fp8Row : RowCodes<32> {
  static constexpr bool kScaled = true, kSharesScales = true;

  template <int kBlocks>
  struct Shared {
    const float* scales;
    __m512i shifts[kBlocks];
    CACHALOT_INLINE_MEMBER Shared(const float* tile_scales, int64_t b) : scales(tile_scales + b) {
      for (int i = 0; i < kBlocks; ++i) shifts[i] = exponent_shift(scales[i]);
    }
  };

  Fp8Tables tables;

  using RowCodes::RowCodes;
  // Rows of one scale tile.
  static bool folds(const PackedWeight& w, int64_t first, int64_t) {
    return scales_fold(w.tile_scales + first / 32 * (w.columns / kBlock), w.columns / kBlock);
  }
  // Whether the input may take the scales.
  static bool moves(const PackedWeight& w, int64_t first, int64_t last) {
    return folds(w, first, last);
  }
  template <Scaling kScaling, int kBlocks>
  CACHALOT_INLINE_MEMBER void decode(const Shared<kBlocks>& shared, Pairs* out) const {
    __m512i words[2];
    tables.decode<kBlocks>(codes, words);
    for (int i = 0; i < kBlocks; ++i) {
      if (kScaling == Scaling::weights)
        words[i] = shifted(words[i], shared.shifts[i], tables.magnitude);
      out[i] = (Pairs)words[i];
    }
  }
  CACHALOT_INLINE_MEMBER float scale(const auto& shared, int i) const { return shared.scales[i]; }
};

}  // namespace
}  // namespace cachalot::cpu
