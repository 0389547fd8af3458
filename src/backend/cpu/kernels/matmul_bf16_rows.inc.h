// Weight rows as the BF16 dot product takes them: a block of 32 columns to a register.
//
// A row is a pointer. below(r) is the row r further down (the same one after repeat()), advance()
// leaves blocks behind. decode() takes one or two blocks, the row's first ones, with a Shared: what
// these blocks of all rows in the same scale tile have in common. Unless the weight takes the
// scales, scale() is what a block's product lacks.
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

struct Bf16Row {
  static constexpr int64_t kBytes = 64;  // of a block
  static constexpr bool kScaled = false, kSharesScales = false;

  template <int>
  struct Shared {
    Shared(const float*, int64_t) {}
  };

  const uint8_t* values;
  int64_t stride;

  Bf16Row(const PackedWeight& w, int64_t row)
      : values(w.data + row * w.row_bytes()), stride(w.row_bytes()) {}
  static bool folds(const PackedWeight&, int64_t, int64_t) { return true; }
  void repeat() { stride = 0; }
  CACHALOT_INLINE_MEMBER Bf16Row below(int64_t rows) const {
    Bf16Row row = *this;
    row.values += rows * stride;
    return row;
  }
  CACHALOT_INLINE_MEMBER void advance(int64_t blocks) { values += blocks * kBytes; }
  CACHALOT_INLINE_MEMBER const uint8_t* data() const { return values; }
  template <Scaling, int kBlocks>
  CACHALOT_INLINE_MEMBER void decode(const Shared<kBlocks>&, Pairs* out) const {
    for (int i = 0; i < kBlocks; ++i) out[i] = load_pairs(values + i * kBytes);
  }
};

// -------------------------------------------------------------------------------------------- FP8

struct Fp8Row {
  static constexpr int64_t kBytes = 32;
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
  const uint8_t* codes;
  int64_t stride;

  Fp8Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), stride(w.row_bytes()) {}
  // Rows of one scale tile.
  static bool folds(const PackedWeight& w, int64_t first, int64_t) {
    return scales_fold(w.tile_scales + first / 32 * (w.columns / kBlock), w.columns / kBlock);
  }
  void repeat() { stride = 0; }
  CACHALOT_INLINE_MEMBER Fp8Row below(int64_t rows) const {
    Fp8Row row = *this;
    row.codes += rows * stride;
    return row;
  }
  CACHALOT_INLINE_MEMBER void advance(int64_t blocks) { codes += blocks * kBytes; }
  CACHALOT_INLINE_MEMBER const uint8_t* data() const { return codes; }
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

// -------------------------------------------------------------------------------------------- FP4

struct Fp4Row {
  static constexpr int64_t kBytes = 16;
  static constexpr bool kScaled = true, kSharesScales = false;

  template <int>
  struct Shared {
    Shared(const float*, int64_t) {}
  };

  __m512i shifts = nibble_shifts();
  const uint8_t* codes;
  const uint8_t* scales;
  int64_t stride, scale_stride;

  Fp4Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()),
        scales(w.row_scales + row * (w.columns / kBlock)),
        stride(w.row_bytes()),
        scale_stride(w.columns / kBlock) {}
  static bool folds(const PackedWeight& w, int64_t first, int64_t last) {
    const int64_t blocks = w.columns / kBlock;
    return scales_fold(w.row_scales + first * blocks, (last - first) * blocks);
  }
  void repeat() { stride = scale_stride = 0; }
  CACHALOT_INLINE_MEMBER Fp4Row below(int64_t rows) const {
    Fp4Row row = *this;
    row.codes += rows * stride;
    row.scales += rows * scale_stride;
    return row;
  }
  CACHALOT_INLINE_MEMBER void advance(int64_t blocks) {
    codes += blocks * kBytes;
    scales += blocks;
  }
  CACHALOT_INLINE_MEMBER const uint8_t* data() const { return codes; }
  template <Scaling kScaling, int kBlocks>
  CACHALOT_INLINE_MEMBER void decode(const Shared<kBlocks>&, Pairs* out) const {
    for (int i = 0; i < kBlocks; ++i) {
      const int scale = kScaling == Scaling::weights ? scales[i] : 127;
      out[i] = (Pairs)decode_e2m1(codes + i * kBytes, scale, shifts);
    }
  }
  CACHALOT_INLINE_MEMBER float scale(const auto&, int i) const { return e8m0_value(scales[i]); }
};

}  // namespace
}  // namespace cachalot::cpu
