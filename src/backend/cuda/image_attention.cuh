// What the two kernels of image_attention take.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/launch.h"

namespace cachalot::cuda {

struct ImageHeads {
  const __nv_bfloat16* qkv;     // [tokens, 3, heads, head_dim]
  const __nv_bfloat16* turned;  // [tokens, 2, heads, head_dim] queries and keys, rotated
  __nv_bfloat16* o;             // [tokens, heads, head_dim]
  int64_t tokens, heads, head_dim;
  float scale;
};

}  // namespace cachalot::cuda
