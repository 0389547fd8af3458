#include "expert_weights.h"

#include <algorithm>
#include <set>

#include "base/number_formats.h"
#include "bench/random_bytes.h"

namespace cachalot::compare {

namespace {

// With dim terms of mean square about 1 a sum has a mean square of about 1.
constexpr uint8_t kFp4Scale = 127 - 7;
constexpr float kFp8Scale = 0x1p-6f;

}  // namespace

ExpertWeights::ExpertWeights(const LayerSize& size) : size_(size) {
  bench::RandomWords random(3);
  const int64_t weights = size.dim * size.width;
  codes_.resize(static_cast<size_t>(size.experts * 3 * weights / 2));
  bench::fill_bytes(codes_.data(), std::ssize(codes_), 0xFF, random);
  scales_.assign(static_cast<size_t>(size.experts * 3 * weights / 32), kFp4Scale);
  for (uint8_t& scale : scales_) scale = static_cast<uint8_t>(scale + random.next() % 2);
  shared_codes_.resize(static_cast<size_t>(3 * weights));
  bench::fill_bytes(shared_codes_.data(), std::ssize(shared_codes_), 0xBF, random);
  shared_scales_.assign(static_cast<size_t>(weights / 1024), kFp8Scale);

  const auto fp4 = [&](int64_t index, int64_t rows, int64_t columns) {
    return Fp4Matrix{rows,
                     columns,
                     {codes_.data() + index * weights / 2, {rows, columns / 2}},
                     {scales_.data() + index * weights / 32, {rows, columns / 32}}};
  };
  const auto fp8 = [&](int64_t index, int64_t rows, int64_t columns) {
    return DenseMatrix{rows,
                       columns,
                       {shared_codes_.data() + index * weights, {rows, columns}},
                       {shared_scales_.data(), {rows / 32, columns / 32}},
                       {}};
  };
  for (int64_t e = 0; e < size.experts; ++e) {
    experts_.push_back({fp4(3 * e, size.width, size.dim), fp4(3 * e + 1, size.dim, size.width),
                        fp4(3 * e + 2, size.width, size.dim)});
  }
  shared_ = {fp8(0, size.width, size.dim), fp8(1, size.dim, size.width),
             fp8(2, size.width, size.dim)};
}

Batch::Batch(const LayerSize& size, int64_t count, uint64_t seed) : tokens(count) {
  bench::RandomWords random(seed);
  for (int64_t i = 0; i < count * size.dim; ++i) {
    x.push_back(to_bf16(static_cast<float>(random.below(1 << 16)) / (1 << 15) - 1));
  }
  std::set<int32_t> used;
  std::vector<int32_t> order(static_cast<size_t>(size.experts));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < size.chosen; ++i) {
      std::swap(order[static_cast<size_t>(i)],
                order[static_cast<size_t>(i + random.below(size.experts - i))]);
      ids.push_back(order[static_cast<size_t>(i)]);
      used.insert(ids.back());
      weights.push_back(0.25f);
    }
  }
  distinct = std::ssize(used);
}

}  // namespace cachalot::compare
