// The experts of one layer with random weights, in the released form.
#pragma once

#include <vector>

#include "ops/experts.h"

namespace cachalot::compare {

struct LayerSize {
  int64_t dim = 5120;
  int64_t width = 2304;
  int64_t experts = 64;
  int64_t chosen = 6;
};

class ExpertWeights {
 public:
  explicit ExpertWeights(const LayerSize& size);

  const LayerSize& size() const { return size_; }
  const std::vector<ExpertMatrices>& experts() const { return experts_; }
  const SharedExpertMatrices& shared() const { return shared_; }

  int64_t expert_bytes() const {
    return experts_[0].w1.bytes() + experts_[0].w2.bytes() + experts_[0].w3.bytes();
  }
  int64_t shared_bytes() const {
    return shared_.w1.bytes() + shared_.w2.bytes() + shared_.w3.bytes();
  }

 private:
  LayerSize size_;
  std::vector<uint8_t> codes_, scales_, shared_codes_;
  std::vector<float> shared_scales_;
  std::vector<ExpertMatrices> experts_;
  SharedExpertMatrices shared_;
};

// What a step asks of the layer.
struct Batch {
  Batch(const LayerSize& size, int64_t tokens, uint64_t seed);

  int64_t tokens;
  std::vector<bf16> x;         // [tokens, dim]
  std::vector<int32_t> ids;    // [tokens, chosen], no expert twice in a row
  std::vector<float> weights;  // [tokens, chosen]
  int64_t distinct = 0;        // experts used
};

}  // namespace cachalot::compare
