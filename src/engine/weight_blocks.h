// Weights of tokens, in blocks: whoever sums them or draws from them does it in this order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace cachalot {

inline constexpr int64_t kWeightBlock = 64;

// Tokens of one block.
struct WeightBlock {
  int64_t first = 0, count = 0;
};

inline WeightBlock weight_block(int64_t index, int64_t tokens) {
  const int64_t first = index * kWeightBlock;
  return {first, std::min(kWeightBlock, tokens - first)};
}

// In an order that depends on the number alone, four lanes of a vector. Always inlined: called at
// the end of a function for wide vectors, GCC leaves their upper halves in use, and what follows is
// slow on Intel's processors.
[[gnu::always_inline]] inline double sum_of_weights(const float* weights, int64_t count) {
  constexpr int64_t kLanes = 4;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += double{weights[i + lane]};
  for (; i < count; ++i) lanes[0] += double{weights[i]};
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Where the cumulative sum passes a goal, block by block and then token by token. Rounding may
// leave all sums at or below it: then the last token of any weight is meant.
class WeightSearch {
 public:
  explicit WeightSearch(double goal) : goal_(goal) {}

  // The next block and the sum of its weights. False: it was not needed.
  bool add(const WeightBlock& block, double sum) {
    if (sum_ > goal_) return false;
    if (sum == 0) return true;
    before_ = sum_;
    sum_ += sum;
    block_ = block;
    return true;
  }

  // -1: all weights are 0.
  int32_t token(std::span<const float> weights) const {
    int64_t token = -1;
    double sum = before_;
    for (int64_t id = block_.first; id < block_.first + block_.count && sum <= goal_; ++id) {
      if (weights[static_cast<size_t>(id)] == 0) continue;
      token = id;
      sum += double{weights[static_cast<size_t>(id)]};
    }
    return static_cast<int32_t>(token);
  }

 private:
  double goal_, before_ = 0, sum_ = 0;
  WeightBlock block_;
};

}  // namespace cachalot
