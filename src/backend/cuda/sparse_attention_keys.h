// What sparse_attention's kernels are told, and where the keys of a token lie. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/held_operation.h"

namespace cachalot::cuda {

// SparseAttentionArgs as a kernel reads them.
struct AttentionParameters {
  const int32_t *positions, *slots, *first_rows, *window_starts, *chosen, *table;
  const uint8_t *window_rows, *ring, *latents;
  const __nv_bfloat16* q;
  __nv_bfloat16* o;
  const float *sink, *frequencies;
  float scale;
  int heads, head_dim, pairs;
  int window, block, ring_rows, window_row_bytes;
  int chosen_count;  // entries per token, 0 without latents
  int latent_row_bytes, pages_per_slot, rows_per_page;
  int page_shift = -1;        // rows of a page as a power of two, or -1
  uint8_t* packed = nullptr;  // of one token (plan/packed_keys.h)
  // Keys, but rows of this step, are there before the kernel starts that packs or copies them.
  bool settled = false;
};

AttentionParameters attention_parameters(const SparseAttentionArgs& args);

// Of one token, whose keys a kernel before has packed (sparse_attention_tiles.cu).
void sparse_attention_of_packed(Queue& queue, const AttentionParameters& of);

// What makes queries, turns them, and packs the keys if keys.packed says where (attention.cu).
void start_queries(Queue& queue, const HeldQueries& queries, const AttentionParameters& keys);

// The window of one token: rows of consecutive positions.
struct WindowOfToken {
  int32_t first_row;  // the row at which its sequence starts in this step
  int32_t slot;
  int32_t start;  // the position of that row
  int32_t first, count;
};

// What a step says of a token, by loads that wait for no other.
struct TokenOfStep {
  int32_t position, slot, first_row, held;
};
__device__ inline TokenOfStep token_of_step(const AttentionParameters& of, int64_t token) {
  return {of.positions[token], of.slots[token], of.first_rows[token],
          of.window_starts == nullptr ? 0 : of.window_starts[token]};
}

__device__ inline WindowOfToken window_of(const AttentionParameters& of, const TokenOfStep& token) {
  WindowOfToken out;
  out.slot = token.slot;
  out.first_row = token.first_row;
  out.start = of.positions[out.first_row];
  const int32_t reach = of.block > 0 ? out.start - of.window : token.position - of.window + 1;
  const int32_t last = of.block > 0 ? out.start + of.block - 1 : token.position;
  out.first = max(max(0, reach), token.held);
  out.count = max(0, last - out.first + 1);
  return out;
}

// The index-th key of the window, 0 .. count - 1.
__device__ inline const uint8_t* window_key(const AttentionParameters& of,
                                            const WindowOfToken& window, int index) {
  const int32_t position = window.first + index;
  if (position >= window.start) {
    const int64_t row = window.first_row + (position - window.start);
    return of.window_rows + row * of.window_row_bytes;
  }
  const int64_t row = static_cast<int64_t>(window.slot) * of.ring_rows + position % of.ring_rows;
  return of.ring + row * of.window_row_bytes;
}

// A latent: row `within` of a page.
__device__ inline int32_t page_of(const AttentionParameters& of, int32_t slot, int32_t index) {
  return __ldg(of.table + static_cast<int64_t>(slot) * of.pages_per_slot + index);
}
__device__ inline const uint8_t* latent_key(const AttentionParameters& of, int32_t page,
                                            int32_t within) {
  const int64_t row = static_cast<int64_t>(page) * of.rows_per_page + within;
  return of.latents + row * of.latent_row_bytes;
}

}  // namespace cachalot::cuda
