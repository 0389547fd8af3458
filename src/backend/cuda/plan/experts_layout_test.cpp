#include "backend/cuda/plan/experts_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace cachalot::cuda {
namespace {

constexpr int64_t kRows = 128, kColumns = 384;
constexpr int64_t kStages = kColumns / kStageDepth;

// As the kernels find things: where row `row`'s place is in arranged order.
int64_t place_of(RowOrder order, int64_t row) {
  if (order == RowOrder::own) return row;
  // Hidden value 8 a + w + 4 b of 32 is row g = 2 a + b of octet w.
  const int64_t within = row % 32, w = within % 4, b = within / 4 % 2, a = within / 8;
  return row / 32 * 32 + w * 8 + 2 * a + b;
}
int64_t stage_of(int64_t place, int64_t stage) { return place / 64 * kStages + stage; }

class ExpertsLayout : public testing::TestWithParam<RowOrder> {};

TEST_P(ExpertsLayout, EveryFp4WordIsWhereItsLaneLooks) {
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t word = 0; word < kColumns / 8; ++word) {
      const int64_t place = place_of(GetParam(), row), octet = place / 8 % 8, g = place % 8;
      const int64_t stage = word / 16, block = word / 4 % 4, c = word % 4, lane = 4 * g + c;
      const int64_t index = (stage_of(place, stage) * 8 + octet) * 128 + lane * 4 + block;
      const ArrangedPlace from = fp4_word_at(GetParam(), kColumns, index);
      ASSERT_EQ(from.row, row);
      ASSERT_EQ(from.unit, word);
    }
}

TEST_P(ExpertsLayout, EveryFp4ScaleIsWhereItsLaneLooks) {
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t scale = 0; scale < kColumns / 32; ++scale) {
      const int64_t place = place_of(GetParam(), row), octet = place / 8 % 8, g = place % 8;
      const int64_t index = (stage_of(place, scale / 4) * 8 + octet) * 32 + g * 4 + scale % 4;
      const ArrangedPlace from = fp4_scale_at(GetParam(), kColumns, index);
      ASSERT_EQ(from.row, row);
      ASSERT_EQ(from.unit, scale);
    }
}

TEST_P(ExpertsLayout, EveryFp8UnitIsWhereItsLaneLooks) {
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t unit = 0; unit < kColumns / 8; ++unit) {
      const int64_t place = place_of(GetParam(), row), octet = place / 8 % 8, g = place % 8;
      const int64_t stage = unit / 16, block = unit / 4 % 4, c = unit % 4, lane = 4 * g + c;
      const int64_t byte =
          (stage_of(place, stage) * 8 + octet) * 1024 + block / 2 * 512 + lane * 16 + block % 2 * 8;
      const ArrangedPlace from = fp8_unit_at(GetParam(), kColumns, byte / 8);
      ASSERT_EQ(from.row, row);
      ASSERT_EQ(from.unit, unit);
    }
}

TEST(ExpertsLayoutScales, EveryFp8ScaleIsWhereItsStageIs) {
  for (int64_t row = 0; row < kRows / 32; ++row)
    for (int64_t scale = 0; scale < kColumns / 32; ++scale) {
      const int64_t index = (row / 2 * kStages + scale / 4) * 8 + row % 2 * 4 + scale % 4;
      const ArrangedPlace from = fp8_scale_at(kColumns, index);
      ASSERT_EQ(from.row, row);
      ASSERT_EQ(from.unit, scale);
    }
}

INSTANTIATE_TEST_SUITE_P(BothOrders, ExpertsLayout,
                         testing::Values(RowOrder::own, RowOrder::gated));

// Whatever the other seven codes are, each comes out as the pattern BF16 wants: sign in bit 15, the
// rest in bits 8..6.
TEST(ExpertsLayoutBits, NineOperationsTakeEightCodesApart) {
  uint32_t random = 1;
  for (int round = 0; round < 1 << 20; ++round) {
    random = random * 1664525u + 1013904223u;
    // All values of the first five codes, and others that no pattern connects.
    const uint32_t eight = (random & 0xFFF00000u) ^ static_cast<uint32_t>(round);
    const uint32_t w = arranged_word(eight);
    const uint32_t pairs[4] = {w & 0x81C081C0u, (w >> 4 | w << 28) & 0x81C081C0u,
                               (w << 6) & 0x81C081C0u,
                               ((w << 2) & 0x80C080C0u) | ((w >> 6) & 0x01000100u)};
    for (int j = 0; j < 4; ++j)
      for (int half = 0; half < 2; ++half) {
        const uint32_t code = eight >> (4 * (j + 4 * half)) & 15;
        ASSERT_EQ(pairs[j] >> (16 * half) & 0xFFFF, (code & 8) << 12 | (code & 7) << 6)
            << "code " << j + 4 * half << " of " << eight;
      }
  }
}

TEST(ExpertsLayoutBits, AnFp8PairIsInTheHalvesOfAWord) {
  const uint64_t out = arranged_fp8(0x0706050403020100);
  for (int j = 0; j < 4; ++j) {
    const auto word = static_cast<uint32_t>(out >> (j / 2 * 32));
    const int byte = j % 2 == 0 ? 8 : 0;
    EXPECT_EQ(word >> byte & 0xFF, j);
    EXPECT_EQ(word >> (byte + 16) & 0xFF, j + 4);
  }
}

TEST(ExpertsLayoutShapes, OnlyWhatTensorCoresTakeIsArranged) {
  EXPECT_TRUE(experts_are_arranged(5120, 2304));
  EXPECT_FALSE(experts_are_arranged(5120 + 128, 2304));
  EXPECT_FALSE(experts_are_arranged(5120, 2304 + 32));
  const uint8_t code = 0;
  const auto fp8 = [&](int64_t rows, int64_t columns) {
    return DenseMatrix{.rows = rows, .columns = columns, .codes = {&code, {rows, columns}}};
  };
  const SharedExpertMatrices shared{.w1 = fp8(128, 256), .w2 = fp8(256, 128), .w3 = fp8(128, 256)};
  std::vector<ExpertMatrices> experts(2);
  for (ExpertMatrices& expert : experts) {
    expert.w1 = expert.w3 = {.rows = 128, .columns = 256};
    expert.w2 = {.rows = 256, .columns = 128};
  }
  EXPECT_TRUE(experts_are_arranged(experts, shared));
  experts[1].w1.rows = 256;
  EXPECT_FALSE(experts_are_arranged(experts, shared));
}

}  // namespace
}  // namespace cachalot::cuda
