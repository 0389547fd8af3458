// What every part of a step sees: the fixed (configuration, weights, constants, caches) and the
// step.
#pragma once

#include "checkpoint/config.h"
#include "model/caches.h"
#include "model/constants.h"
#include "model/observer.h"
#include "model/step.h"
#include "model/weights.h"

namespace cachalot {

struct Context {
  const ModelConfig& config;
  const ModelWeights& weights;
  const ModelConstants& constants;
  const Caches& caches;
  const StepShape& shape;
  const StepInputs& inputs;
  Observer* observer = nullptr;

  int64_t tokens() const { return shape.tokens; }
  template <class T>
  PagedRows<T> paged(View<T> rows) const {
    return {rows, inputs.page_table};
  }
};

// The residual stream between layers, and the mix that collapses it for the next sublayer.
struct Stream {
  View<bf16> copies;  // [tokens, copies, dim]
  View<float> mix;    // [tokens, copies]
};

// What index sources leave for the layers above them (the shared hand-off).
struct Picks {
  View<int32_t> chosen;      // [tokens, index_topk]
  View<int32_t> candidates;  // [tokens, candidate_topk_blocks], absent without a second level
};

}  // namespace cachalot
