#include "backend/cuda/plan/dense_fp8_plan.h"

#include <gtest/gtest.h>

namespace cachalot::cuda {
namespace {

struct Weight {
  int64_t rows, columns;
};

// The released FP8 weights, and small ones.
constexpr Weight kWeights[] = {{1280, 5120},  {512, 5120},  {32768, 1280}, {5120, 8192},
                               {25600, 6144}, {4096, 1280}, {5120, 15360}, {2304, 5120},
                               {5120, 2304},  {256, 256},   {8, 128},      {96, 128}};

TEST(Fp8Cut, CoversEveryStepOnce) {
  for (const Weight& weight : kWeights) {
    const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
    EXPECT_EQ(cut.steps, weight.columns / kStepColumns);
    EXPECT_EQ(cut.first_step(0), 0);
    EXPECT_EQ(cut.first_step(cut.chunks), cut.steps);
    for (int chunk = 0; chunk < cut.chunks; ++chunk)
      EXPECT_LT(cut.first_step(chunk), cut.first_step(chunk + 1));
  }
}

// Enough blocks to ask for the weight at full speed, and no more than run at a time: two to a
// multiprocessor.
TEST(Fp8Cut, SpreadsReleasedWeightsOverTheMultiprocessors) {
  constexpr int64_t kMultiprocessors = 132;
  for (const Weight& weight : kWeights) {
    if (weight.rows * weight.columns < int64_t{10} << 20) continue;
    const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
    const int64_t tiles = (weight.rows + kFewTileRows - 1) / kFewTileRows;
    EXPECT_GE(tiles * cut.chunks, 120) << weight.rows << " x " << weight.columns;
    EXPECT_LE(tiles * cut.chunks, 2 * kMultiprocessors) << weight.rows << " x " << weight.columns;
  }
}

// As measured on 132 multiprocessors.
TEST(ManyFp8Groups, TakesTheFasterTile) {
  EXPECT_EQ(many_fp8_groups(8192, 32768, false, 132), 3);
  EXPECT_EQ(many_fp8_groups(192, 32768, false, 132), 3);
  EXPECT_EQ(many_fp8_groups(256, 32768, false, 132), 2);
  EXPECT_EQ(many_fp8_groups(8192, 5120, true, 132), 2);
  EXPECT_EQ(many_fp8_groups(512, 5120, true, 132), 3);
  EXPECT_EQ(many_fp8_groups(8192, 512, true, 132), 2);
  EXPECT_EQ(many_fp8_groups(65, 8, false, 132), 2);
  EXPECT_EQ(many_fp8_groups(65, 8, false, 2), 2);
}

}  // namespace
}  // namespace cachalot::cuda
