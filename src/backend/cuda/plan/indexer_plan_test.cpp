#include "backend/cuda/plan/indexer_plan.h"

#include <gtest/gtest.h>

namespace cachalot::cuda {
namespace {

IndexerShape released(int64_t tokens, int64_t ratio, int64_t context) {
  return {.tokens = tokens,
          .heads = 32,
          .width = 128,
          .rows_per_page = 256 / ratio,
          .pages_per_slot = context / 256,
          .chosen = 512,
          .multiprocessors = 132};
}

TEST(IndexerPlan, AMillionPositionsAreScoredWithinTheLimit) {
  for (const int64_t tokens : {1, 64, 8192}) {
    const IndexerPlan plan = IndexerPlan::of(released(tokens, 1, 1 << 20));
    EXPECT_EQ(plan.entries, 1 << 20);
    EXPECT_LE(plan.chunk * plan.score_stride * 4, IndexerPlan::kMostScoreBytes);
    EXPECT_GE(plan.chunk, std::min<int64_t>(tokens, kScoreRows));
  }
}

TEST(IndexerPlan, FewRowsSpreadOverAllMultiprocessors) {
  const IndexerPlan alone = IndexerPlan::of(released(1, 2, 1 << 20));
  EXPECT_GE(alone.score_splits, 132);
  EXPECT_EQ(alone.select_splits, 8);
  EXPECT_EQ(IndexerPlan::of(released(64, 2, 1 << 18)).select_splits, 2);
  EXPECT_EQ(IndexerPlan::of(released(8192, 2, 32768)).select_splits, 1);
}

TEST(IndexerPlan, ShapesDecideOnTensorCoresNotTokens) {
  for (const int64_t tokens : {1, 7, 8192}) {
    EXPECT_TRUE(IndexerPlan::of(released(tokens, 2, 4096)).tensor_cores);
    IndexerShape nano = released(tokens, 2, 4096);
    nano.heads = 4;
    nano.width = 32;
    EXPECT_FALSE(IndexerPlan::of(nano).tensor_cores);
  }
  IndexerShape pages = released(1, 2, 4096);
  pages.rows_per_page = 64;
  EXPECT_TRUE(IndexerPlan::of(pages).tensor_cores);
  pages.rows_per_page = 32;
  EXPECT_FALSE(IndexerPlan::of(pages).tensor_cores);
}

TEST(IndexerPlan, ARowThatUsesCandidatesChoosesAmongTheirEntriesAlone) {
  IndexerShape shape = released(4, 1, 1 << 20);
  shape.candidate_block = 8;
  shape.candidate_blocks = 2048;
  shape.uses_candidates = true;
  EXPECT_EQ(IndexerPlan::of(shape).entries, 16384);
  shape.pages_per_slot = 2;
  EXPECT_EQ(IndexerPlan::of(shape).entries, 512);
}

TEST(IndexerPlan, BlocksThatScoreManyRowsMakeNoQueries) {
  for (const int64_t tokens : {1, 64, 8192}) {
    IndexerShape shape = released(tokens, 1, 1 << 15);
    EXPECT_EQ(IndexerPlan::of(shape).scores_make_queries, tokens == 1);
    shape.candidate_block = 8;
    shape.candidate_blocks = 2048;
    shape.uses_candidates = true;
    EXPECT_EQ(IndexerPlan::of(shape).scores_make_queries, tokens <= 64);
    shape.heads = 4;
    EXPECT_FALSE(IndexerPlan::of(shape).scores_make_queries);
  }
}

// Of 227 KB; the selection's other needs are below 20.
TEST(IndexerPlan, ABlockKeepsARowOfScoresAndTheList) {
  for (const int64_t chosen : {512, 2048, 20000, 100000}) {
    for (const int64_t context : {256, 32768, 41216, 1 << 20}) {
      IndexerShape shape = released(64, 1, context);
      shape.chosen = chosen;
      const IndexerPlan plan = IndexerPlan::of(shape);
      EXPECT_GE(plan.kept_scores, 0);
      if (chosen <= 2048) {
        EXPECT_GE(plan.kept_scores, std::min(plan.score_stride, IndexerPlan::kHeldScores));
        EXPECT_LE(2 * plan.list_capacity + plan.kept_scores, IndexerPlan::kSelectWords);
      }
    }
  }
}

}  // namespace
}  // namespace cachalot::cuda
