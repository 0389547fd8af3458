// The two kernels of sparse_attention, which tests compare.
#pragma once

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// Any shape, on the plain cores.
void sparse_attention_plain(Queue& queue, const SparseAttentionArgs& args);

// On the tensor cores, `blocks` (1, 2, 4 or 8) thread blocks per token: the same bits for each.
void sparse_attention_in_tiles(Queue& queue, const SparseAttentionArgs& args, int blocks);

// The number of blocks with which so many tokens are done soonest.
int sparse_attention_blocks(int64_t tokens);

// 64 heads of 512 channels, window and latents in at most 10 tiles of 64 keys.
bool sparse_attention_fits_tiles(const SparseAttentionArgs& args);

}  // namespace cachalot::cuda
