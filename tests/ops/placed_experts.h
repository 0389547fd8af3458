// Arguments of moe_experts for tests that place experts here and there.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/experts.h"
#include "random_tensors.h"

namespace cachalot {

// `deviation`: of x.
inline MoeExpertsArgs random_experts(RandomTensors& random, int64_t dim, int64_t width,
                                     int64_t tokens, int64_t experts, int64_t choices,
                                     float deviation = 0.5f) {
  const View<ExpertMatrices> list = random.tensor<ExpertMatrices>({experts});
  for (int64_t e = 0; e < experts; ++e)
    list.data[e] = {.w1 = random.fp4_matrix(width, dim),
                    .w2 = random.fp4_matrix(dim, width),
                    .w3 = random.fp4_matrix(width, dim)};
  const View<int32_t> ids = random.tensor<int32_t>({tokens, choices});
  std::vector<int32_t> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), random.engine());
    std::copy_n(all.begin(), choices, ids.row(t));
  }
  return {.x = random.bf16s({tokens, dim}, deviation),
          .ids = ids,
          .weights = random.floats({tokens, choices}, 0.05f, 0.25f),
          .experts = {list.data, static_cast<size_t>(experts)},
          .shared = {.w1 = random.fp8_matrix(width, dim),
                     .w2 = random.fp8_matrix(dim, width),
                     .w3 = random.fp8_matrix(width, dim)},
          .limit = 10,
          .y = random.tensor<bf16>({tokens, dim})};
}

// Every (token, choice) of `args` as a token of its own, without a shared expert: y are the y_e.
inline MoeExpertsArgs pairs_of(RandomTensors& random, const MoeExpertsArgs& args) {
  const int64_t pairs = args.ids.elements(), k = args.ids.extent(1), dim = args.x.extent(1);
  const auto silent = [&](DenseMatrix matrix) {
    matrix.codes = random.tensor<uint8_t>(matrix.codes.shape);
    return matrix;
  };
  const View<bf16> x = random.tensor<bf16>({pairs, dim});
  for (int64_t i = 0; i < pairs; ++i) std::copy_n(args.x.row(i / k), dim, x.row(i));
  MoeExpertsArgs out = args;
  out.x = x;
  out.ids = {args.ids.data, {pairs, 1}};
  out.weights = {args.weights.data, {pairs, 1}};
  out.shared = {
      .w1 = silent(args.shared.w1), .w2 = silent(args.shared.w2), .w3 = silent(args.shared.w3)};
  out.y = random.tensor<bf16>({pairs, dim});
  return out;
}

// The tokens first .. first + count - 1.
inline MoeExpertsArgs tokens_of(RandomTensors& random, const MoeExpertsArgs& args, int64_t first,
                                int64_t count) {
  const int64_t k = args.ids.extent(1), dim = args.x.extent(1);
  MoeExpertsArgs out = args;
  out.x = {args.x.row(first), {count, dim}};
  out.ids = {args.ids.row(first), {count, k}};
  out.weights = {args.weights.row(first), {count, k}};
  out.y = random.tensor<bf16>({count, dim});
  return out;
}

}  // namespace cachalot
