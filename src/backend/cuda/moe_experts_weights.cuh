// Matrix rows on their way from shared memory to the registers that tensor cores take as A: E2M1 or
// E4M3 codes times their power of two, exactly, as BF16. How codes and scales lie:
// experts_layout.h.
//
// A k-step of 16 wants of lane 4 g + c two rows (g, g + 8) and four columns. Which inputs these
// columns are is free, as long as the other operand agrees. So lane c has 8 codes in a row of a
// block of 32, inputs 8 c .. 8 c + 7, and its four pairs (8 c + j, 8 c + j + 4) are what two
// k-steps take: k-step j / 2, columns 2 c + 8 (j % 2) and the one after. In the other operand
//   input 8 c + j + 4 i  lies at  8 j + 2 c + i       (input_place)
//
// Weights are 2^-32 of what they are, so that no scale under 2^33 overflows BF16 where a code
// is brought up from the subnormal range. kWeightShift takes it back, in FP32.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/plan/experts_plan.h"
#include "backend/cuda/ptx/shared_by_address.h"

namespace cachalot::cuda {

inline constexpr float kWeightShift = 0x1p32f;
// Eight rows of 128 inputs.
inline constexpr int kFp4OctetBytes = 512, kFp8OctetBytes = 1024;

// Both halves times the lower or upper half of `scales`: an instruction takes either for both.
template <bool upper>
__device__ inline uint32_t scaled(uint32_t pair, uint32_t scales) {
  const auto two = *reinterpret_cast<const __nv_bfloat162*>(&scales);
  const __nv_bfloat162 out = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                     upper ? __high2bfloat162(two) : __low2bfloat162(two));
  return *reinterpret_cast<const uint32_t*>(&out);
}

// Two octets of rows - g of one and g of the other - over a stage's 128 inputs: what a lane needs
// of them. load() is for all blocks of 32 inputs, then come fetch(), settle() and expand() block by
// block. `late`: codes are loaded by each block's fetch(), and not expanded before its settle(), in
// the order of the program. Else the compiler, which likes to work ahead, needs the registers of
// all blocks at once. kHalves 1: one octet of rows, in the place of the first; the others are
// zeros.
//
// Left shifts are multiplications: those run beside the logic unit, which issues an instruction
// only every other cycle and has the most to do.
template <bool late, int kHalves = 2>
class Fp4Rows {
 public:
  static constexpr bool kShared = false;
  static constexpr int kOctetBytes = kFp4OctetBytes, kScaleBytes = 32;

  // Where the octets' codes and scales begin, in shared memory.
  __device__ void load(int half, uint32_t codes, uint32_t scales, int lane) {
    codes_[half] = codes + lane * 16;
    if constexpr (!late) words_[half] = load_shared_4(codes_[half]);
    scales_[half] = load_shared(scales + lane / 4 * 4);
  }
  __device__ void fetch(int block) {
    if constexpr (late) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        if (block % 2 == 0) two_[half] = load_shared_2(codes_[half] + block * 4);
    }
  }
  __device__ void settle(int block) {
    if constexpr (late) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        if (block % 2 == 0) renew(two_[half].x);
        renew(two_[half].y);
      }
    }
  }
  // The fragments of the two k-steps of a block of 32 inputs.
  __device__ void expand(int block, uint32_t (&steps)[2][4]) const {
    if constexpr (kHalves == 1) steps[0][1] = steps[0][3] = steps[1][1] = steps[1][3] = 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t word = word_of(half, block);
      // Of a pair of blocks. E8M0 counts from 127; a code in place is 2^-126 of its value, and
      // 2^-32 is wanted.
      const uint32_t two = __byte_perm(scales_[half], 0, block / 2 == 0 ? 0x4140 : 0x4342);
      const uint32_t scales = two * 128 + ((126 - 32) << 7) * 0x10001u;
      if (block % 2 == 0) {
        expand_word<false>(word, scales, half, steps);
      } else {
        expand_word<true>(word, scales, half, steps);
      }
    }
  }

 private:
  // A code's sign goes to bit 15 of its half, the rest to bits 8 .. 6, exponent and mantissa
  // (arranged_word).
  template <bool upper>
  __device__ static void expand_word(uint32_t word, uint32_t scales, int half,
                                     uint32_t (&steps)[2][4]) {
    constexpr uint32_t kCode = 0x81C081C0u, kFirst = 0x01000100u;
    steps[0][half] = scaled<upper>(word & kCode, scales);
    steps[0][half + 2] = scaled<upper>(__funnelshift_r(word, word, 4) & kCode, scales);
    steps[1][half] = scaled<upper>((word * 64) & kCode, scales);
    steps[1][half + 2] =
        scaled<upper>(((word * 4) & (kCode ^ kFirst)) | ((word >> 6) & kFirst), scales);
  }
  __device__ uint32_t word_of(int half, int block) const {
    if constexpr (late) return block % 2 == 0 ? two_[half].x : two_[half].y;
    const uint4& four = words_[half];
    return block == 0 ? four.x : block == 1 ? four.y : block == 2 ? four.z : four.w;
  }

  uint32_t codes_[2];   // where
  uint4 words_[2];      // [half], by block
  uint2 two_[2];        // of a pair of blocks
  uint32_t scales_[2];  // a byte per block
};

// The shared expert's. A scale per 32 rows and 32 inputs, as a float.
template <bool late, int kHalves = 2>
class Fp8Rows {
 public:
  static constexpr bool kShared = true;
  static constexpr int kOctetBytes = kFp8OctetBytes, kScaleBytes = 4;

  __device__ void load(int half, uint32_t codes, uint32_t scales, int lane) {
    codes_[half] = codes + lane * 16;
    // The scales of a group of 32 rows lie together: four octets have the same.
    scales_[half] = scales / 16 * 16;
    if constexpr (!late) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)
        words_[half][pair] = load_shared_4(codes_[half] + pair * 512);
      four_scales_[half] = load_shared_4(scales_[half]);
    }
  }
  __device__ void fetch(int block) {
    if constexpr (late) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        two_[half] = load_shared_2(codes_[half] + block / 2 * 512 + block % 2 * 8);
        scale_[half] = load_shared(scales_[half] + block * 4);
      }
    }
  }
  __device__ void settle(int) {
    if constexpr (late) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        renew(two_[half].x);
        renew(two_[half].y);
        renew(scale_[half]);
      }
    }
  }
  __device__ void expand(int block, uint32_t (&steps)[2][4]) const {
    if constexpr (kHalves == 1) steps[0][1] = steps[0][3] = steps[1][1] = steps[1][3] = 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint2 two = words_of(half, block);
      const uint32_t words[2] = {two.x, two.y};
      // The scale is a power of two: the upper half of the float is BF16's. A code in place is
      // 2^-120 of its value, and 2^-32 is wanted.
      const uint32_t scale = scale_of(half, block) + ((120 - 32) << 23);
      constexpr uint32_t kSign = 0x80008000u, kRest = 0x07F007F0u;
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t word = words[step];
        steps[step][half] = scaled<true>((word & kSign) | ((word >> 4) & kRest), scale);
        steps[step][half + 2] = scaled<true>(((word * 256) & kSign) | ((word * 16) & kRest), scale);
      }
    }
  }

 private:
  __device__ uint2 words_of(int half, int block) const {
    if constexpr (late) return two_[half];
    const uint4& four = words_[half][block / 2];
    return block % 2 == 0 ? make_uint2(four.x, four.y) : make_uint2(four.z, four.w);
  }
  __device__ uint32_t scale_of(int half, int block) const {
    if constexpr (late) return scale_[half];
    const uint4& four = four_scales_[half];
    return block == 0 ? four.x : block == 1 ? four.y : block == 2 ? four.z : four.w;
  }

  uint32_t codes_[2], scales_[2];  // where
  uint4 words_[2][2];              // [half][pair of blocks]
  uint4 four_scales_[2];           // [half], by block
  uint2 two_[2];                   // of a block
  uint32_t scale_[2];
};

}  // namespace cachalot::cuda
