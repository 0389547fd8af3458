// The scores of any shape: a thread per entry.
#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_scores.h"
#include "backend/cuda/launch.h"
#include "tensor/block_quantizers.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;

// blockIdx.y: a row; blockIdx.x: one of gridDim.x parts of its pool.
__global__ void __launch_bounds__(kThreads)
    plain_scores_kernel(IndexPool pool, PlainQueries queries, int32_t heads, int32_t width) {
  extern __shared__ float shared[];
  const int32_t groups = width / static_cast<int32_t>(kIndexGroup);
  float* codes = shared;                  // [heads, width] without their scales
  float* scales = codes + heads * width;  // [heads, groups]
  float* weights = scales + heads * groups;
  wait_for_inputs();
  let_next_start();
  const int32_t t = pool.first + static_cast<int32_t>(blockIdx.y), row_bytes = width / 2 + groups;
  const uint8_t* packed = queries.packed + static_cast<int64_t>(t) * heads * row_bytes;
  for (int32_t i = threadIdx.x; i < heads * width; i += kThreads) {
    const uint32_t byte = packed[i / width * row_bytes + i % width / 2];
    codes[i] = e2m1_value(byte >> (i % 2 * 4) & 15);
  }
  for (int32_t i = threadIdx.x; i < heads * groups; i += kThreads) {
    scales[i] = e8m0_value(packed[i / groups * row_bytes + width / 2 + i % groups]);
  }
  for (int32_t i = threadIdx.x; i < heads; i += kThreads) {
    weights[i] = queries.weights[static_cast<int64_t>(t) * heads + i];
  }
  __syncthreads();
  const int32_t visible = pool.visible(t);
  int32_t most = visible;
  if (pool.candidates != nullptr) {
    const int32_t size = pool.candidate_block;
    most = min((visible + size - 1) / size, pool.candidate_blocks) * size;
  }
  for (int32_t i = static_cast<int32_t>(blockIdx.x) * kThreads + threadIdx.x; i < most;
       i += static_cast<int32_t>(gridDim.x) * kThreads) {
    int32_t entry = i;
    if (pool.candidates != nullptr) {
      const int32_t block = pool.blocks_of(t)[i / pool.candidate_block];
      entry = block * pool.candidate_block + i % pool.candidate_block;
      if (block < 0 || entry >= visible) continue;
    }
    const uint8_t* key = pool.keys.row(pool.rows.slots[t], entry);
    float sum = 0;
    for (int32_t head = 0; head < heads; ++head) {
      float dot = 0;
      for (int32_t g = 0; g < groups; ++g) {
        float part = 0;  // exact: multiples of a quarter
        for (int32_t c = 0; c < static_cast<int32_t>(kIndexGroup); c += 2) {
          const uint32_t byte = key[(g * static_cast<int32_t>(kIndexGroup) + c) / 2];
          const float* query = codes + head * width + g * static_cast<int32_t>(kIndexGroup) + c;
          part = fmaf(query[0], e2m1_value(byte & 15), part);
          part = fmaf(query[1], e2m1_value(byte >> 4), part);
        }
        dot = fmaf(part, scales[head * groups + g] * e8m0_value(key[width / 2 + g]), dot);
      }
      sum = fmaf(weights[head], fmaxf(dot, 0.0f), sum);
    }
    pool.scores_of(t)[i] = sum;
  }
}

}  // namespace

void plain_scores(Queue& queue, const IndexPool& pool, const PlainQueries& queries, int32_t heads,
                  int32_t width) {
  const int64_t floats = int64_t{heads} * (width + width / kIndexGroup + 1);
  CACHALOT_CHECK(floats * 4 <= int64_t{227} << 10, "{} index heads of {}", heads, width);
  constexpr int64_t kMostParts = 64;
  const int64_t parts = std::min((pool.stride + kThreads - 1) / kThreads, kMostParts);
  launch(queue, "index_select", plain_scores_kernel,
         {.blocks = {static_cast<unsigned>(parts), static_cast<unsigned>(pool.count)},
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(floats) * sizeof(float)},
         pool, queries, heads, width);
}

}  // namespace cachalot::cuda
