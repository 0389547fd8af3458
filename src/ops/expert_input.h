// How moe_experts rounds what its routed experts read: a choice of whoever runs the model.
#pragma once

namespace cachalot {

// How a routed expert's inputs are rounded before its FP4 matrices (the shared expert's: always
// FP8).
enum class ExpertInput {
  fp8,   // E4M3 and a power of two per 32, as the model was released (spec: model, 2.2)
  int8,  // per 32: scale = FP32(largest magnitude / 127), RNE(x / scale); faster
};

}  // namespace cachalot
