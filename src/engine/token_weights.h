// The weights of a row of logits, exp((logit - best) / temperature), and the cuts that leave some
// of them out: all tokens beside each other, in blocks, so that every pass is one the compiler
// vectorises and most blocks of a peaked row are passed over.
//
// Ranks go by logit, ties to the lower id.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/weight_blocks.h"

namespace cachalot {

class TokenWeights {
 public:
  // For rows that are weighed one after the other: half a megabyte that stays where the processor
  // finds it fast.
  static TokenWeights& of_this_thread();

  // Of one row after another; a row is read until the next start(). Errors: a row that means
  // nothing (NaN or +inf in it, or every token masked).
  Status start(std::span<const float> logits);

  float best() const { return best_; }
  int32_t best_token() const;  // the first with the best logit

  // Then, in this order, each at most once:
  void keep_best(int64_t count);
  // Weights below 2^-64 of the best token's count as 0: no draw of 53 bits can tell them from it.
  // So may those below `least`.
  void weigh(double temperature, double least);
  void keep_share(double share);      // the fewest best tokens that have this share of all weights
  void keep_heaviest(double weight);  // those of at least this weight; the best token's is 1

  // Of what is left, after weigh().
  double total() const;
  // The inverse of the cumulative distribution, in the order of ids; `random` is in [0, 1).
  int32_t draw(double random) const;
  // By token, all of the row.
  void put(std::vector<float>& weights) const;

 private:
  static constexpr int64_t kBins = 2048, kSpareBins = 16;

  struct Rank {
    float logit = 0;
    int32_t id = 0;
  };
  static bool ranks_before(const Rank& a, const Rank& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  WeightBlock block_at(int32_t index) const {
    return weight_block(index, static_cast<int64_t>(logits_.size()));
  }
  template <class Keeps>
  void keep_where(Keeps keeps);
  void drop_behind(const Rank& last);
  // Of every token of a block the bin of its logit, best first.
  void put_bins(const WeightBlock& block, std::array<int32_t, kWeightBlock>& bins) const;

  std::span<const float> logits_;
  float best_ = 0;
  Rank last_;                   // nothing behind it stays
  std::vector<float> maxima_;   // of all blocks
  std::vector<float> weights_;  // [vocab], those of blocks in kept_; 0: left out
  std::vector<int32_t> kept_;   // blocks with weights, ascending
  std::vector<double> sums_;    // of their weights
  std::vector<Rank> selection_;
  std::vector<double> amounts_;  // of bins
  float bin_scale_ = 0;
  double temperature_ = 1;
};

}  // namespace cachalot
