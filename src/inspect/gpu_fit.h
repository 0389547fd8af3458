// What of a model lies on a GPU of some size, and how fast that can be: the engine's own placement,
// on weights that are only planned.
#pragma once

#include "base/result.h"
#include "checkpoint/config.h"
#include "inspect/fit.h"
#include "model/placed_weights.h"

namespace cachalot {

struct GpuFitRequest {
  int64_t memory = 0;           // bytes of the GPU that may be used
  int64_t chunk = 512;          // tokens of the longest step
  double bytes_per_second = 0;  // the GPU's memory
};

struct GpuFit {
  WeightPlacement placement;
  int64_t caches = 0, workspace = 0;  // bytes, kernels' and the vision tower's included
  // Read for a step of the sequences of a FitRequest at full context, routing taken as even.
  double bytes_from_gpu = 0, bytes_from_host = 0;
  double tokens_per_second = 0;  // of all sequences together, GPU and host one after the other

  int64_t layers_on_gpu() const;
};

// host.memory_bytes_per_second is what the CPU computes the other layers' experts from; what that
// reads from disk is left out. Errors: see place_on_gpu.
Result<GpuFit> fit_gpu(const ModelConfig& config, const FitRequest& host, const GpuFitRequest& gpu);

}  // namespace cachalot
