// The rows that many tokens have at the experts they chose, copied from the shared expert's while
// that one is multiplied: by the warps beside the one that fills the ring, which have nothing else
// to do. Memory is idle then, and a kernel of its own would wait for it.
#pragma once

#include "backend/cuda/launch.h"
#include "backend/cuda/plan/experts_plan.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// Which rows come later; `counts` is nullptr if all are there.
struct LaterRows {
  int32_t* counts;  // tokens that a warp has taken; tokens whose rows are there
  const int32_t* pair_rows;
  bf16* rows;  // atoms of [rows, dim]
  int dim, tokens, choices, shared_row;
};

// By whole warps, as many as there are. A token is whoever's comes first: nobody waits for a block
// that does not run yet.
__device__ inline void copy_later_rows(const LaterRows& later) {
  constexpr int kAtOnce = 4;  // units of 32 pieces of 16 bytes
  const int lane = threadIdx.x % 32, columns = later.dim / 64, units = later.dim / 256;
  uint4* const pieces = reinterpret_cast<uint4*>(later.rows);
  // Where this lane's piece of the first unit lies in a row; the next unit's is 4 atoms on.
  const auto place = [&](int row) {
    const int r = row % kAtomRows;
    return pieces + (static_cast<int64_t>(row / kAtomRows) * columns + lane / 8) * 64 + r * 8 +
           (lane % 8 ^ r);
  };
  for (;;) {
    int token = 0;
    if (lane == 0) token = atomicAdd(later.counts, 1);
    token = __shfl_sync(~0u, token, 0);
    if (token >= later.tokens) return;
    const int row = lane < later.choices ? later.pair_rows[token * later.choices + lane] : 0;
    const uint4* const from = place(later.shared_row + token);
#pragma unroll 1
    for (int first = 0; first < units; first += kAtOnce) {
      uint4 some[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i < units) some[i] = from[(first + i) * 256];
#pragma unroll 1
      for (int choice = 0; choice < later.choices; ++choice) {
        uint4* const to = place(__shfl_sync(~0u, row, choice));
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (first + i < units) to[(first + i) * 256] = some[i];
      }
    }
    // Bulk copies will read what was written here by stores.
    __threadfence();
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncwarp();
    if (lane == 0) atomicAdd(later.counts + 1, 1);
  }
}

// Until all rows are there. By a warp that starts copies of them.
__device__ inline void await_later_rows(const LaterRows& later) {
  if (later.counts == nullptr) return;
  for (int there = 0;;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(there)
                 : "l"(later.counts + 1)
                 : "memory");
    if (there == later.tokens) break;
    __nanosleep(500);
  }
  asm volatile("fence.proxy.async;" ::: "memory");
}

}  // namespace cachalot::cuda
