// How index_select divides its work: a function of shapes alone, so that a captured graph serves
// any contents. docs/kernels/index_select.md
#pragma once

#include <algorithm>
#include <cstdint>

namespace cachalot::cuda {

// Entries that are copied and scored together, in two products.
inline constexpr int64_t kScoreTile = 128;
// Consecutive rows of a step whose queries a block holds; those of one sequence share its keys.
inline constexpr int64_t kScoreRows = 8;

struct IndexerShape {
  int64_t tokens = 0;
  int64_t heads = 0, width = 0;
  int64_t rows_per_page = 0, pages_per_slot = 0;
  int64_t candidate_block = 0, candidate_blocks = 0;  // 0: no second level
  bool uses_candidates = false;
  int64_t chosen = 0;
  int64_t multiprocessors = 0;
};

struct IndexerPlan {
  bool tensor_cores = false;
  int64_t entries = 0;               // that a row may have to choose from
  int64_t score_stride = 0;          // floats from one row's scores to the next
  int64_t chunk = 0;                 // rows of the step scored before they choose
  int64_t score_splits = 0;          // blocks that share the entries of kScoreRows rows
  bool scores_make_queries = false;  // each block those of the rows it scores entries of
  int64_t select_splits = 0;         // blocks, a cluster, that share the scores of one row
  int64_t list_capacity = 0;         // entries that may be left after the scores' leading bits
  int64_t kept_scores = 0;           // that a block of a selection keeps in shared memory

  // Scores of a chunk at a time: far below what a cache of a million positions leaves free, and
  // enough for every launch to fill the GPU.
  static constexpr int64_t kMostScoreBytes = int64_t{512} << 20;
  // Where rows do not share their entries, a block of so many that share those of kScoreRows rows
  // scores those of two or three rows at most: it makes their queries sooner than a kernel in
  // front.
  static constexpr int64_t kLeastMakingSplits = 8;
  // Blocks of the scoring kernel that a multiprocessor holds.
  static constexpr int64_t kScoreBlocks = 1;
  // Scores of a row that one block chooses from by itself, and what it reads in one turn of more.
  static constexpr int64_t kHeldScores = 40 << 10, kScoreTurn = 4 << 10;
  // The largest cluster every Hopper GPU can start.
  static constexpr int64_t kMostSelectSplits = 8;
  // Words of shared memory for the list and the kept scores, of the 227 KB a block may have.
  static constexpr int64_t kSelectWords = 50 << 10;

  static IndexerPlan of(const IndexerShape& shape) {
    const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const bool builds = shape.candidate_blocks > 0 && !shape.uses_candidates;
    IndexerPlan plan;
    plan.tensor_cores =
        shape.heads == 32 && shape.width == 128 &&
        (shape.uses_candidates ? shape.candidate_block == 8 && shape.rows_per_page >= 8
                               : shape.rows_per_page >= kScoreTile / 2) &&
        (shape.rows_per_page & (shape.rows_per_page - 1)) == 0;
    plan.entries = shape.pages_per_slot * shape.rows_per_page;
    if (shape.uses_candidates) {
      plan.entries =
          std::min(divide_up(plan.entries, shape.candidate_block), shape.candidate_blocks) *
          shape.candidate_block;
    }
    plan.score_stride = std::max<int64_t>(divide_up(plan.entries, kScoreTile), 1) * kScoreTile;
    const int64_t fitting = kMostScoreBytes / (plan.score_stride * 4) / kScoreRows * kScoreRows;
    plan.chunk = std::clamp<int64_t>(shape.tokens, 1, std::max(fitting, kScoreRows));
    const int64_t groups = divide_up(plan.chunk, kScoreRows);
    plan.score_splits = std::clamp<int64_t>(kScoreBlocks * shape.multiprocessors / groups, 1,
                                            divide_up(plan.score_stride, 2 * kScoreTile));
    plan.scores_make_queries =
        plan.tensor_cores &&
        (shape.tokens == 1 || (shape.uses_candidates && plan.score_splits >= kLeastMakingSplits));
    const int64_t selections = plan.chunk * (builds ? 2 : 1);
    const int64_t turns = divide_up(plan.score_stride, kScoreTurn);
    const bool held = plan.score_stride <= kHeldScores;
    plan.select_splits = 1;
    while (!held && 2 * plan.select_splits <= std::min(turns, kMostSelectSplits) &&
           2 * plan.select_splits * selections <= shape.multiprocessors) {
      plan.select_splits *= 2;
    }
    // The leading bits leave the best and those that share the last one's; measured on normally
    // distributed scores, a few hundred.
    const int64_t most = std::max(shape.chosen, builds ? shape.candidate_blocks : 0);
    plan.list_capacity = divide_up(most, 1024) * 1024 + 3072;
    plan.kept_scores =
        std::clamp<int64_t>(kSelectWords - 2 * plan.list_capacity, 0,
                            std::max(divide_up(turns, plan.select_splits) * kScoreTurn,
                                     std::min(plan.score_stride, kHeldScores)));
    return plan;
  }
};

}  // namespace cachalot::cuda
