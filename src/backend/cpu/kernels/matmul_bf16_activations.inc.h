// Activations prepared as BF16, for the kernels that multiply BF16 values.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// A quantized value has four significant bits: it is stored as it is.
void quantize(const bf16* x, int64_t columns, Format, void* prepared) {
  auto* out = static_cast<uint16_t*>(prepared);
  for (int64_t k = 0; k < columns; k += kBlock) {
    F32 v[kBlockVectors];
    F32 largest = splat(0.0f);
    for (int i = 0; i < kBlockVectors; ++i) {
      v[i] = load_bf16(x + k + i * kLanes);
      largest = max(abs(v[i]), largest);
    }
    const uint8_t code = fp8_scale_code_of(max_of(largest));
    const F32 inverse = splat(bits_to_float(uint32_t{254u - code} << 23));
    const F32 scale = splat(bits_to_float(uint32_t{code} << 23));
    for (int i = 0; i < kBlockVectors; ++i) {
      store_bf16(out + k + i * kLanes, round_e4m3(v[i] * inverse) * scale);
    }
  }
}

void keep(const bf16* x, int64_t columns, Format, void* prepared) {
  __builtin_memcpy(prepared, x, static_cast<size_t>(columns) * sizeof(bf16));
}

}  // namespace
}  // namespace cachalot::cpu
