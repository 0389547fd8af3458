#include "backend/cuda/plan/product_plan.h"

#include <gtest/gtest.h>

namespace cachalot::cuda {
namespace {

struct Shape {
  int64_t groups, rows, columns;
};

// Compressor, index weights, output groups, head, vision tower; nano's; odd ones.
constexpr Shape kShapes[] = {{1, 512, 5120},  {1, 32, 5120},   {8, 1024, 4096}, {1, 129280, 5120},
                             {1, 3072, 1024}, {1, 1024, 1024}, {1, 5632, 1024}, {1, 1024, 2816},
                             {1, 5120, 9216}, {2, 128, 256},   {1, 64, 256},    {3, 96, 160},
                             {1, 77, 33}};

TEST(ProductPlan, SegmentsFollowFromTheWeightAlone) {
  for (const Shape& shape : kShapes) {
    const int segments = product_segments(shape.groups, shape.rows, shape.columns);
    for (int64_t tokens = 1; tokens < 20000; tokens = tokens * 3 / 2 + 1) {
      EXPECT_EQ(product_plan(shape.groups, shape.rows, shape.columns, tokens).segments, segments);
    }
  }
}

TEST(ProductPlan, SegmentsCoverAllChunksAndNoneIsEmpty) {
  for (const Shape& shape : kShapes) {
    const auto chunks = static_cast<int>(parts_of(shape.columns, kProductChunk));
    const int segments = product_segments(shape.groups, shape.rows, shape.columns);
    EXPECT_EQ(segment_begin(chunks, segments, 0), 0);
    EXPECT_EQ(segment_begin(chunks, segments, segments), chunks);
    for (int s = 0; s < segments; ++s) {
      EXPECT_LT(segment_begin(chunks, segments, s), segment_begin(chunks, segments, s + 1));
    }
  }
}

TEST(ProductPlan, TilesCoverAllTokensAndRows) {
  for (const Shape& shape : kShapes) {
    for (int64_t tokens = 1; tokens < 20000; tokens = tokens * 3 / 2 + 1) {
      const ProductPlan plan = product_plan(shape.groups, shape.rows, shape.columns, tokens);
      EXPECT_GE(int64_t{plan.token_tile} * plan.token_tiles, tokens);
      EXPECT_GE(int64_t{plan.row_tiles} * (plan.wide ? 128 : 64), shape.rows);
      EXPECT_TRUE(!plan.wide || plan.row_tiles % 2 == 0);
      EXPECT_TRUE(!plan.wide || plan.segments == 1 || plan.token_tile == 128);
      EXPECT_TRUE(plan.wide || plan.token_tile <= (plan.segments == 1 ? 128 : 64));
    }
  }
}

TEST(ProductPlan, ASmallMatrixIsShared) {
  EXPECT_EQ(product_segments(1, 512, 5120), 8);
  EXPECT_EQ(product_segments(1, 32, 5120), 8);
  EXPECT_EQ(product_segments(8, 1024, 4096), 1);
  EXPECT_EQ(product_segments(1, 129280, 5120), 1);
}

TEST(ProductPlan, ManyTokensTakeWideTiles) {
  for (const int64_t tokens : {1, 8, 128}) EXPECT_FALSE(product_plan(8, 1024, 4096, tokens).wide);
  EXPECT_EQ(product_plan(8, 1024, 4096, 256).token_tile, 128);  // one wave of either: the smaller
  EXPECT_EQ(product_plan(8, 1024, 4096, 512).token_tile, 256);
  EXPECT_TRUE(product_plan(8, 1024, 4096, 8192).wide);
  EXPECT_EQ(product_plan(8, 1024, 4096, 8192).token_tile, 256);
  EXPECT_EQ(product_plan(1, 512, 5120, 8192).token_tile, 128);
}

}  // namespace
}  // namespace cachalot::cuda
