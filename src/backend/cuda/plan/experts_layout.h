// The order in which the experts' matrices lie in device memory where tensor cores take them: not
// the checkpoint's, but the one in which they are read.
//
// What a warp needs at a time - 64 rows of 128 inputs, a stage - is contiguous, and so are the
// stages of 64 rows: copies are of kilobytes, not of the 64 bytes that a stage has of a row, and
// need no addresses. Within a stage every lane finds what it multiplies in one piece. And the bits
// of eight FP4 codes lie so that nine operations make BF16 patterns of them: expanding codes is
// what the narrow kernel's instructions are spent on.
//
// Matrices keep their places and sizes, codes and scales apart; only the order inside changes.
// Which matrices are arranged so is a question of their shapes alone (experts_are_arranged): who
// brings them to the device and who reads them ask the same function.
//
// Names: a lane is 4 g + c. Of an octet of 8 rows it has row g, of every block of 32 inputs those
// from 8 c to 8 c + 7.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/matrix.h"

namespace cachalot::cuda {

// Inputs of a stage, and rows of a warpgroup's product.
inline constexpr int kStageDepth = 128;
inline constexpr int kStageRows = 64;
// The wide kernel's items are so many rows of w2.
inline constexpr int kArrangedDim = 256;

constexpr bool experts_are_arranged(int64_t dim, int64_t width) {
  return dim % kArrangedDim == 0 && width % kStageDepth == 0;
}
// A list in which one expert has another width than the shared one lies as the checkpoint has it.
inline bool experts_are_arranged(std::span<const ExpertMatrices> experts,
                                 const SharedExpertMatrices& shared) {
  for (const ExpertMatrices& expert : experts)
    if (expert.w1.rows != shared.w1.rows) return false;
  return shared.w1.quantized() && experts_are_arranged(shared.w1.columns, shared.w1.rows);
}

// Of gate and up (w1, w3) an octet's rows are such that one thread gets 8 values of a hidden row
// in the order that the next product reads (input_place() in moe_experts_weights.cuh): octet w of
// 32 rows has in place g hidden value 8 (g / 2) + w + 4 (g % 2). w2's rows are in their own order.
enum class RowOrder { own, gated };

// The row that lies at `place` = 8 octet + g of all rows.
constexpr int64_t arranged_row(RowOrder order, int64_t place) {
  if (order == RowOrder::own) return place;
  const int64_t octet = place / 8 % 4, g = place % 8;
  return place / 32 * 32 + g / 2 * 8 + octet + g % 2 * 4;
}

// Where an index in arranged order comes from in the checkpoint's.
struct ArrangedPlace {
  int64_t row;
  int64_t unit;  // of the row: 8 codes, or one scale
};

// FP4 codes, words of 8: [64 rows][stage][octet][lane][block]. A lane reads its four words of an
// octet, one per block, at once.
constexpr ArrangedPlace fp4_word_at(RowOrder order, int64_t columns, int64_t index) {
  const int64_t stages = columns / kStageDepth;
  const int64_t block = index % 4, c = index / 4 % 4, g = index / 16 % 8, octet = index / 128 % 8;
  const int64_t stage = index / 1024 % stages, rows64 = index / 1024 / stages;
  return {arranged_row(order, rows64 * kStageRows + octet * 8 + g), stage * 16 + block * 4 + c};
}

// FP4 scales, bytes: [64 rows][stage][octet][g][block].
constexpr ArrangedPlace fp4_scale_at(RowOrder order, int64_t columns, int64_t index) {
  const int64_t stages = columns / kStageDepth;
  const int64_t block = index % 4, g = index / 4 % 8, octet = index / 32 % 8;
  const int64_t stage = index / 256 % stages, rows64 = index / 256 / stages;
  return {arranged_row(order, rows64 * kStageRows + octet * 8 + g), stage * 4 + block};
}

// FP8 codes (the shared expert's), 8 bytes at a time:
// [64 rows][stage][octet][pair of blocks][lane][block of the pair].
constexpr ArrangedPlace fp8_unit_at(RowOrder order, int64_t columns, int64_t index) {
  const int64_t stages = columns / kStageDepth;
  const int64_t c = index / 2 % 4, g = index / 8 % 8, octet = index / 128 % 8;
  const int64_t block = index / 64 % 2 * 2 + index % 2;
  const int64_t stage = index / 1024 % stages, rows64 = index / 1024 / stages;
  return {arranged_row(order, rows64 * kStageRows + octet * 8 + g), stage * 16 + block * 4 + c};
}

// FP8 scales, floats: [64 rows][stage][32 rows][block]; `row` is of 32 rows here. The gated order
// stays within 32 rows.
constexpr ArrangedPlace fp8_scale_at(int64_t columns, int64_t index) {
  const int64_t stages = columns / kStageDepth;
  const int64_t block = index % 4, half = index / 4 % 2;
  const int64_t stage = index / 8 % stages, rows64 = index / 8 / stages;
  return {rows64 * 2 + half, stage * 4 + block};
}

// Eight E4M3 codes, the first in the lowest byte: codes j and j + 4 come into the halves of a word,
// two such pairs to a word, those of even j in the upper bytes, where BF16 wants the sign.
constexpr uint64_t arranged_fp8(uint64_t eight) {
  constexpr int kCodeAt[8] = {1, 0, 5, 4, 3, 2, 7, 6};
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= (eight >> (8 * kCodeAt[i]) & 0xFF) << (8 * i);
  return out;
}

// Eight E2M1 codes, the first in the lowest bits, as the checkpoint packs them. Codes j and j + 4
// come into the lower and upper half of a BF16 pair, which wants a code's sign in bit 15 and its
// other three in bits 8..6, the lowest of the exponent and the highest of the mantissa. So in the
// lower half, and with halves exchanged in the upper one,
//   code  0      1       2      3
//   sign  15     19      9      13
//   rest  8..6   12..10  2..0   14, 5, 4
// and the pairs are, with w the word, on the mask 0x81C0 of each half
//   0  w     1  w rotated right by 4     2  w << 6     3  w << 2, but 0x0100 of it from w >> 6
// What else a shift carries from half to half no mask lets through. One shift a code would be less
// still, but no four such patterns fill 16 bits.
constexpr uint32_t arranged_word(uint32_t eight) {
  constexpr int kPlaces[4][4] = {{6, 7, 8, 15}, {10, 11, 12, 19}, {0, 1, 2, 9}, {4, 5, 14, 13}};
  uint32_t out = 0;
  for (int code = 0; code < 8; ++code)
    for (int bit = 0; bit < 4; ++bit)
      out |= (eight >> (4 * code + bit) & 1) << (kPlaces[code % 4][bit] + code / 4 * 16) % 32;
  return out;
}

}  // namespace cachalot::cuda
