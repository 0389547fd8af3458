// What of a model lies on a GPU of some size, and how fast that can be: the engine's own placement,
// on weights that are only planned.
#pragma once

#include "base/result.h"
#include "checkpoint/config.h"
#include "engine/engine.h"
#include "engine/expert_profile.h"
#include "inspect/fit.h"
#include "model/placed_weights.h"

namespace cachalot {

struct GpuFitRequest {
  int64_t memory = 0;           // bytes of the GPU that may be used
  int64_t chunk = 512;          // tokens of the longest step
  double bytes_per_second = 0;  // the GPU's memory
  ExpertsOn experts_on = ExpertsOn::as_fits;
  double bus_bytes_per_second = 0;  // what it reads of the host's memory; for streamed experts
  // How often experts are chosen; nullptr: each as often as another.
  const ExpertProfile* profile = nullptr;
};

struct GpuFit {
  WeightPlacement placement;
  int64_t caches = 0, workspace = 0;  // bytes, kernels' and the vision tower's included
  int64_t experts_of_host = 0;        // bytes of those that do not lie on the GPU
  double choices_on_gpu = 0;          // the part of all choices of an expert that lies there
  // Of what lies beside the GPU: experts of draft stages are resident where drafts are made,
  // streamed ones all, as they are pinned.
  HostMemory host;
  // Read for a step of the sequences of a FitRequest at full context. What comes from the disk is
  // read from the host's memory once more.
  double bytes_from_gpu = 0, bytes_from_host = 0, bytes_from_disk = 0;
  // Of all sequences together; within a layer the experts of both memories at the same time, the
  // shared one with the GPU's. 0: experts come from a disk whose speed is needed, or a memory's is
  // not known.
  double tokens_per_second = 0;

  int64_t layers_on_gpu() const;  // with all their experts
};

// host.memory_bytes_per_second is what the CPU computes the other experts from. Errors: see
// place_on_gpu.
Result<GpuFit> fit_gpu(const ModelConfig& config, const FitRequest& host, const GpuFitRequest& gpu);

// What a step reads of a placement and how fast that is, anew: where the host's speed was not known
// when it was made.
void estimate_speed(GpuFit& fit, const ModelConfig& config, const FitRequest& host,
                    const GpuFitRequest& gpu);

}  // namespace cachalot
