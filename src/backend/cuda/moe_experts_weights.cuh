// Matrix rows on their way from shared memory to the registers that wgmma takes as A: E2M1 or E4M3
// codes times their power of two, exactly, as BF16.
//
// wgmma's k-step of 16 wants of lane 4 g + c two rows (g, g + 8) and four columns. Which inputs
// these columns are is free, as long as the other operand agrees. So lane c reads 8 codes in a row
// of a block of 32, inputs 8 c .. 8 c + 7, and its four pairs (8 c + j, 8 c + j + 4) are what two
// k-steps take: k-step j / 2, columns 2 c + 8 (j % 2) and the one after. In the other operand
//   input 8 c + j + 4 i  lies at  8 j + 2 c + i       (input_place)
//
// Weights are 2^-32 of what they are, so that no scale under 2^33 overflows BF16 where a code
// is brought up from the subnormal range. kWeightShift takes it back, in FP32.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/plan/experts_plan.h"
#include "backend/cuda/ptx/row_copies.h"

namespace cachalot::cuda {

inline constexpr float kWeightShift = 0x1p32f;

__device__ inline uint32_t scaled(uint32_t pair, uint32_t scale) {
  const __nv_bfloat162 out = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                     *reinterpret_cast<const __nv_bfloat162*>(&scale));
  return *reinterpret_cast<const uint32_t*>(&out);
}

// A stage's codes in shared memory: `rows` rows of 128 inputs, then scales. Pieces of 16 bytes are
// permuted within a row so that the eight rows a warp reads at once lie in different banks.
struct Fp4Stage {
  static constexpr int kRowBytes = kStageDepth / 2;
  __device__ static int place(int row, int piece) {
    return row * kRowBytes + ((piece ^ ((row >> 1) & 3)) << 4);
  }
};
struct Fp8Stage {
  static constexpr int kRowBytes = kStageDepth;
  __device__ static int place(int row, int piece) {
    return row * kRowBytes + ((piece ^ ((row & 3) << 1)) << 4);
  }
};

// The rows g and g + 8 of one 16-row slab: what a lane needs of a stage, a block of 32 at a time.
class Fp4Slab {
 public:
  using Stage = Fp4Stage;

  // `row`: this lane's first, in the stage; `c`: the lane modulo 4.
  __device__ void start(uint32_t codes, uint32_t scales, int row, int c) {
    codes_ = codes + Stage::place(row, 0) + c * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) scales_[half] = load_shared(scales + (row + half * 8) * 4);
  }
  __device__ void load(int block) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words_[half] = load_shared((codes_ ^ (block << 4)) + half * 8 * Stage::kRowBytes);
  }
  // The fragments of the two k-steps of the block loaded.
  __device__ void expand(int block, uint32_t (&steps)[2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = words_[half];
      // E8M0 counts from 127. A code in place is 2^-126 of its value, and 2^-32 is wanted.
      const uint32_t twice = __byte_perm(scales_[half], 0, 0x4040 + block * 0x0101);
      const uint32_t scale = twice * 128 + ((126 - 32) << 7) * 0x10001u;
      // A code's sign goes to bit 15 of its half, the rest to exponent and mantissa, bits 8..6: one
      // multiplication shifts both ways. Adders and logic run at half the rate of multipliers, so
      // the fewest of them count: nine for eight codes.
      const uint32_t swapped = __byte_perm(word, 0, 0x2301);
      steps[0][half] = scaled(placed<0>(word), scale);
      steps[0][half + 2] = scaled(placed<1>(word), scale);
      steps[1][half] = scaled(placed<0>(swapped), scale);
      steps[1][half + 2] = scaled(placed<1>(swapped), scale);
    }
  }

 private:
  // Nibble `which` of both halves' lower bytes.
  template <int which>
  __device__ static uint32_t placed(uint32_t word) {
    const uint32_t codes = word & (which == 0 ? 0x000F000Fu : 0x00F000F0u);
    return codes * (which == 0 ? 0x1040u : 0x0104u) & 0x81C081C0u;
  }

  uint32_t codes_;      // where this lane's are
  uint32_t words_[2];   // [half], 8 codes
  uint32_t scales_[2];  // a byte per block
};

// The shared expert's. Scales in the stage: [64-row group][side][block], floats; the side is the
// matrix of a gated pair (rows g: gate, g + 8: up) or else the half of the group.
template <bool gated>
class Fp8Slab {
 public:
  using Stage = Fp8Stage;

  __device__ void start(uint32_t codes, uint32_t scales, int row, int c) {
    codes_ = codes + Stage::place(row, c / 2) + c % 2 * 8;
    scales_ = scales + row / 64 * 32 + (gated ? 0 : row % 64 / 32 * 16);
  }
  __device__ void load(int block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words_[half] = load_shared_2((codes_ ^ (block << 5)) + half * 8 * Stage::kRowBytes);
      exponents_[half] = load_shared(scales_ + (gated ? half * 16 : 0) + block * 4) >> 16;
    }
  }
  __device__ void expand(int, uint32_t (&steps)[2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 words = words_[half];
      // The scale is a power of two: its exponent is BF16's. A code in place is 2^-120 of its
      // value.
      const uint32_t scale = (exponents_[half] + ((120 - 32) << 7)) * 0x10001u;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        // Codes j and j + 4 to the upper bytes of the halves; what the lower ones hold is masked.
        const uint32_t pair = __byte_perm(words.x, words.y, j * 0x11 + (j + 4) * 0x1100);
        steps[j / 2][half + j % 2 * 2] =
            scaled((pair & 0x80008000u) | ((pair >> 4) & 0x07F007F0u), scale);
      }
    }
  }

 private:
  uint32_t codes_, scales_;
  uint2 words_[2];
  uint32_t exponents_[2];
};

}  // namespace cachalot::cuda
