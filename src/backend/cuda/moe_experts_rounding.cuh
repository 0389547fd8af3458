// Tokens' values rounded to FP8, and their way into the rows that the experts read.
#pragma once

#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/moe_experts_parts.h"

namespace cachalot::cuda {

constexpr int kPieceValues = 8;  // 16 bytes: what a lane has of a row

// A piece of a row, rounded; a warp calls, for 32 pieces in a row. Lanes c = 0..3 of four have a
// group of 32 inputs, 8 c .. 8 c + 7 each, and pair those of 8 c + j and 8 c + j + 4.
__device__ inline void rounded_pairs(uint4 eight, uint32_t (&pairs)[4]) {
  const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
  float values[kPieceValues];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
#pragma unroll
  for (int i = 0; i < kPieceValues; ++i) largest = fmaxf(largest, fabsf(values[i]));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
  const Fp8Group fp8(largest);
#pragma unroll
  for (int j = 0; j < 4; ++j) pairs[j] = packed_bf16(fp8.rounded(values[j], values[j + 4]));
}

// The same as rows have them: lane c leaves with the words 4 c .. 4 c + 3 of the group, where word
// 4 j + c holds inputs 8 c + j and 8 c + j + 4, which is input_place().
__device__ inline uint4 rounded_piece(uint4 eight) {
  uint32_t pairs[4];
  rounded_pairs(eight, pairs);
  // Lane c has column c of a 4 x 4 matrix of words and wants row c: two exchanges, of which each
  // swaps what lies on the other side of the diagonal.
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? pairs[j] : pairs[j + 1], 1);
    pairs[j] = odd ? other : pairs[j];
    pairs[j + 1] = odd ? pairs[j + 1] : other;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t other = __shfl_xor_sync(~0u, upper ? pairs[j] : pairs[j + 2], 2);
    pairs[j] = upper ? other : pairs[j];
    pairs[j + 2] = upper ? pairs[j + 2] : other;
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// The rounded rows of a step, in atoms (moe_experts_parts.h).
class RoundedRows {
 public:
  __device__ explicit RoundedRows(const ExpertsStep& step)
      : rows_(reinterpret_cast<uint4*>(step.rounded)), atoms_(static_cast<int>(step.dim / 64)) {}

  __device__ void write(int row, int piece, uint4 values) const {
    const int64_t atom = int64_t{row / kAtomRows} * atoms_ + piece / 8;
    const int r = row % kAtomRows;
    rows_[atom * 64 + r * 8 + (piece % 8 ^ r)] = values;
  }

 private:
  uint4* rows_;
  int atoms_;  // of 8 rows
};

// experts_prepare where a warp can hold all pairs.
bool prepare_few_takes(const ExpertsPlan& plan);
void experts_prepare_few(Queue& queue, const ExpertsStep& step);

}  // namespace cachalot::cuda
