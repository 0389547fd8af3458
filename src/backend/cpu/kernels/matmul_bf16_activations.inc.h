// Activations prepared as BF16, for the kernels that multiply BF16 values.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// A quantized value has four significant bits: it is stored as it is.
void quantize(const bf16* x, int64_t first, int64_t count, Format, void* row) {
  auto* out = static_cast<uint16_t*>(row) + first;
  for (int64_t k = 0; k < count; k += kBlock) {
    const Block rounded = round_group(x + k);
    for (int i = 0; i < kBlockVectors; ++i) store_bf16(out + k + i * kLanes, rounded.v[i]);
  }
}

void keep(const bf16* x, int64_t first, int64_t count, Format, void* row) {
  __builtin_memcpy(static_cast<uint16_t*>(row) + first, x,
                   static_cast<size_t>(count) * sizeof(bf16));
}

}  // namespace
}  // namespace cachalot::cpu
