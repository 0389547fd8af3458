#include "backend/cuda/plan/attention_plan.h"

#include <gtest/gtest.h>

namespace cachalot::cuda {
namespace {

TEST(AttentionPlan, SharesCoverAllGroupsOnce) {
  for (int groups = 2; groups <= 20; groups += 2) {
    for (const int blocks : {1, 2, 4, 8}) {
      int covered = 0;
      for (int rank = 0; rank < blocks; ++rank) {
        const AttentionShare share = attention_share(groups, blocks, rank);
        EXPECT_EQ(share.begin, covered);
        EXPECT_GE(share.end, share.begin);
        covered = share.end;
      }
      EXPECT_EQ(covered, groups);
    }
  }
}

TEST(AttentionPlan, TakesTheMostBlocksWithWhichAllTokensRunAtOnce) {
  constexpr AttentionRoom kRoom{.of_two = 66, .of_four = 31, .of_eight = 15};
  EXPECT_EQ(attention_blocks_per_token(1, kRoom), 8);
  EXPECT_EQ(attention_blocks_per_token(15, kRoom), 8);
  EXPECT_EQ(attention_blocks_per_token(16, kRoom), 4);
  EXPECT_EQ(attention_blocks_per_token(32, kRoom), 2);
  EXPECT_EQ(attention_blocks_per_token(66, kRoom), 2);
  EXPECT_EQ(attention_blocks_per_token(67, kRoom), 1);
}

TEST(AttentionPlan, TheReleasedModelsKeysFitTheTiles) {
  EXPECT_EQ(attention_tiles(128, 512), kAttentionMostTiles);
  EXPECT_EQ(attention_tiles(133, 0), 3);
  EXPECT_GT(attention_tiles(133, 512), kAttentionMostTiles);
}

}  // namespace
}  // namespace cachalot::cuda
