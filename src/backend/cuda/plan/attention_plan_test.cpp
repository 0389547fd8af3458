#include "backend/cuda/plan/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot::cuda {
namespace {

TEST(AttentionPlan, SharesCoverAllGroupsOnceAndChunksAreWhole) {
  for (int groups = 2; groups <= kAttentionMostGroups; groups += 2) {
    for (int window_end = 0; window_end <= std::min(groups, 12); window_end += 2) {
      const int chunks =
          attention_score_chunks(window_end) + attention_score_chunks(groups - window_end);
      for (const int blocks : {1, 2, 4, 8}) {
        int covered = 0, least = chunks, most = 0;
        for (int rank = 0; rank < blocks; ++rank) {
          const AttentionShare share = attention_share(window_end, groups, blocks, rank);
          EXPECT_EQ(share.begin, covered);
          EXPECT_GE(share.end, share.begin);
          covered = share.end;
          const int own = attention_score_chunks(share, window_end).count();
          least = std::min(least, own);
          most = std::max(most, own);
          if (chunks <= blocks) continue;
          const int from = share.begin < window_end ? 0 : window_end;
          EXPECT_EQ((share.begin - from) % kAttentionChunkGroups, 0);
        }
        EXPECT_EQ(covered, groups);
        if (chunks > blocks) {
          EXPECT_LE(most - least, 1);
        }
      }
    }
  }
}

TEST(AttentionPlan, ChunksCoverAShareOnceAndHaveOneFormat) {
  for (int begin = 0; begin <= 12; ++begin) {
    for (int end = begin; end <= 24; ++end) {
      for (int window_end = 0; window_end <= 12; window_end += 2) {
        const AttentionChunks chunks{{begin, end}, window_end, 2, 4};
        int covered = begin;
        for (int i = 0; i < chunks.count(); ++i) {
          const AttentionChunk chunk = chunks.at(i);
          EXPECT_EQ(chunk.first, covered);
          EXPECT_GT(chunk.count, 0);
          covered += chunk.count;
          EXPECT_EQ(chunk.window, chunk.first < window_end);
          EXPECT_EQ(chunk.window, covered - 1 < window_end);
        }
        EXPECT_EQ(covered, end);
        EXPECT_EQ(chunks.at(chunks.count()).count, 0);
        EXPECT_EQ(chunks.at(chunks.count() + 1).count, 0);
      }
    }
  }
}

TEST(AttentionPlan, RoundsAreEnoughForEveryShare) {
  for (int window = 0; window <= 64 * kAttentionMostWindowTiles; ++window) {
    for (int latents = 0; attention_tiles(window, latents) <= kAttentionMostTiles; latents += 7) {
      const int window_end = attention_groups(window);
      const int groups = window_end + attention_groups(latents);
      ASSERT_LE(groups, kAttentionMostGroups);
      for (const int blocks : {1, 2, 4, 8}) {
        for (int rank = 0; rank < blocks; ++rank) {
          const int chunks =
              attention_score_chunks(attention_share(window_end, groups, blocks, rank), window_end)
                  .count();
          ASSERT_LE(chunks, 2 * attention_most_rounds(blocks)) << window << " " << latents;
        }
      }
    }
  }
}

// Whole rows of all chunks, one behind the other up to the end of ring and P.
TEST(AttentionPlan, WholeRowsOfEveryShareFitRingAndWeights) {
  constexpr int kEnd = kAttentionRingBytes + kAttentionWeightBytes;
  for (int window_end = 0; window_end <= 4 * kAttentionMostWindowTiles; window_end += 2) {
    for (int groups = std::max(2, window_end); groups <= kAttentionMostGroups; groups += 2) {
      const int tiles =
          attention_score_chunks(window_end) + attention_score_chunks(groups - window_end);
      if (tiles > kAttentionMostTiles) continue;
      for (const int blocks : {2, 4, 8}) {
        for (int rank = 0; rank < blocks; ++rank) {
          const AttentionChunks chunks =
              attention_score_chunks(attention_share(window_end, groups, blocks, rank), window_end);
          const AttentionRows rows(chunks);
          ASSERT_LE(chunks.count(),
                    attention_most_chunks(blocks) + attention_most_chunks(blocks) % 2);
          ASSERT_GE(rows.begin, 0) << window_end << " " << groups << " " << blocks;
          EXPECT_EQ(rows.at(0), rows.begin);
          EXPECT_EQ(rows.at(chunks.count()), kEnd);
          for (int i = 0; i < chunks.count(); ++i) {
            const AttentionChunk chunk = chunks.at(i);
            const int pitch = chunk.window ? kAttentionWindowPitch : kAttentionLatentPitch;
            EXPECT_GE(rows.at(i + 1) - rows.at(i), chunk.count * kAttentionGroupKeys * pitch);
            EXPECT_EQ(rows.at(i) % 16, 0);
          }
        }
      }
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
