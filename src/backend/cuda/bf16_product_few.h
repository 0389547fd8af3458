// Products of few tokens with FP8 weights: a kernel of their own, with the bits of the others.
#pragma once

#include "backend/cuda/bf16_product.h"

namespace cachalot::cuda {

inline constexpr int64_t kFewTokens = 8;

// By the weight's shape and where it and x lie, not by the number of tokens.
bool fits_few(const Product& product);
// Up to kFewTokens.
void multiply_few(Queue& queue, const Product& product);

}  // namespace cachalot::cuda
