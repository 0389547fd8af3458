// The scores of index_select. For .cu files.
#pragma once

#include "backend/cuda/indexer_queries.h"
#include "backend/cuda/plan/indexer_plan.h"

namespace cachalot::cuda {

// What the rows of a chunk of a step choose from. Without `candidates` entry i of a row's pool is
// entry i; else entry i % block of the i / block-th of its candidate blocks.
struct IndexPool {
  DeviceRows rows;
  DevicePages<const uint8_t> keys;
  int32_t ratio;
  int32_t first, count;  // rows of the step
  const int32_t* candidates;
  int32_t candidate_block, candidate_blocks;
  float* scores;  // [count, stride]; what lies behind a row's pool is anything
  int64_t stride;
  int32_t unscored;  // a row that sees so many entries at most chooses all: no scores are needed

  __device__ int32_t visible(int32_t t) const { return (rows.positions[t] + 1) / ratio; }
  __device__ const int32_t* blocks_of(int32_t t) const {
    return candidates + static_cast<int64_t>(t) * candidate_blocks;
  }
  __device__ float* scores_of(int32_t t) const { return scores + (t - first) * stride; }
};

void tensor_scores(Queue& queue, const IndexPool& pool, const TensorQueries& queries,
                   const IndexerPlan& plan);
// The same where the blocks make the queries: plan.scores_make_queries.
void tensor_scores(Queue& queue, const IndexPool& pool, const QueryMaking& making,
                   const IndexerPlan& plan);
void plain_scores(Queue& queue, const IndexPool& pool, const PlainQueries& queries, int32_t heads,
                  int32_t width);

}  // namespace cachalot::cuda
