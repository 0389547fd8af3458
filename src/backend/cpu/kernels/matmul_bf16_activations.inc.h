// Activations prepared as BF16, for the kernels that multiply BF16 values.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// A quantized value has four significant bits: it is stored as it is.
void quantize(const bf16* x, int64_t columns, Format, void* prepared) {
  auto* out = static_cast<uint16_t*>(prepared);
  for (int64_t k = 0; k < columns; k += kBlock) {
    const Block rounded = round_group(x + k);
    for (int i = 0; i < kBlockVectors; ++i) store_bf16(out + k + i * kLanes, rounded.v[i]);
  }
}

void keep(const bf16* x, int64_t columns, Format, void* prepared) {
  __builtin_memcpy(prepared, x, static_cast<size_t>(columns) * sizeof(bf16));
}

}  // namespace
}  // namespace cachalot::cpu
