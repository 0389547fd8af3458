// Which table rows n-grams hash to: bucket sizes, their places in a layer's table, and hash
// multipliers (spec: model, 9.2 and 9.3). All 64-bit integers, exact; no floating point anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace cachalot {

struct EngramLayout {
  std::vector<int64_t> layer_ids;
  // Bucket size of [layer][n-gram size - 2][head]. No prime is used twice.
  std::vector<std::vector<std::vector<int64_t>>> primes;
  // First table row of [layer][column], column = (size - 2) * heads + head.
  std::vector<std::vector<int64_t>> offsets;
  // Odd factor of [layer][lookback], lookback in 0..max_ngram - 1. Times a class id it stays below
  // 2^63, so the signed products of the reference never wrap.
  std::vector<std::vector<int64_t>> multipliers;
  // Table rows of [layer]: the sum of its primes.
  std::vector<int64_t> rows;
};

// Rows of the tables depend on the bucket size, never on config.engram_num_embeddings.
EngramLayout engram_layout(const ModelConfig& config);

// `count` draws of NumPy's default_rng(seed).integers(0, bound, dtype=int64). 1 <= bound.
std::vector<int64_t> numpy_integers(uint64_t seed, int64_t bound, int64_t count);

}  // namespace cachalot
