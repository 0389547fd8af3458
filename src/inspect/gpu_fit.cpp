#include "inspect/gpu_fit.h"

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "engine/gpu_placement.h"
#include "model/caches.h"
#include "model/decoder.h"

namespace cachalot {
namespace {

// A step's reads of what any layer reads, and of the experts of one layer.
struct StepBytes {
  double always = 0, experts_of_layer = 0;
};

StepBytes step_bytes(const ModelConfig& config, const FitRequest& host) {
  const auto sequences = static_cast<double>(host.sequences);
  StepBytes bytes;
  for (const FitPart& part : checkpoint_parts(config)) {
    const auto whole = static_cast<double>(part.bytes);
    if (part.kind == FitPart::Kind::experts) {
      bytes.experts_of_layer += whole * experts_chosen(config, host.sequences) /
                                static_cast<double>(config.n_routed_experts * config.n_layers);
    } else if (part.name == "shared experts") {
      bytes.experts_of_layer += whole / static_cast<double>(config.n_layers);
    } else if (part.kind == FitPart::Kind::dense) {
      bytes.always += whole;
    } else if (part.kind == FitPart::Kind::rows) {
      bytes.always += sequences * static_cast<double>(part.bytes_per_token);
    }
  }
  bytes.always += sequences * static_cast<double>(cache_bytes_read(config, host.context));
  return bytes;
}

}  // namespace

int64_t GpuFit::layers_on_gpu() const { return std::ranges::count(placement.experts, true); }

Result<GpuFit> fit_gpu(const ModelConfig& config, const FitRequest& host,
                       const GpuFitRequest& gpu) {
  const Checkpoint checkpoint = Checkpoint::planned(config);
  CACHALOT_TRY(const ModelWeights weights, ModelWeights::bind(checkpoint));
  const CacheOptions cache_options{.slots = host.sequences, .max_context = host.context};
  const ModelConstants constants =
      ModelConstants::make(config, std::vector<int32_t>(static_cast<size_t>(config.vocab_size)));
  GpuFit out;
  out.caches = Caches::bytes_of(config, cache_options);
  const auto arena = static_cast<int64_t>(
      plan_workspace(config, weights, constants, Caches::planned(config, cache_options), gpu.chunk,
                     std::min(gpu.chunk, host.sequences)));
  out.workspace = arena + kernel_memory(config, gpu.chunk) + vision_memory(config);
  EngineOptions options;
  options.max_step_tokens = gpu.chunk;
  const cuda::DeviceInfo device{
      .name = "the GPU", .memory = gpu.memory, .free_memory = gpu.memory, .multiprocessors = 0};
  CACHALOT_TRY(out.placement, place_on_gpu(weights, config, options, device, out.caches, arena));

  const StepBytes bytes = step_bytes(config, host);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    const bool on_gpu = out.placement.experts[static_cast<size_t>(layer)];
    (on_gpu ? out.bytes_from_gpu : out.bytes_from_host) += bytes.experts_of_layer;
  }
  out.bytes_from_gpu += bytes.always;
  if (gpu.bytes_per_second > 0 && (out.bytes_from_host == 0 || host.memory_bytes_per_second > 0)) {
    double seconds = out.bytes_from_gpu / gpu.bytes_per_second;
    if (out.bytes_from_host > 0) seconds += out.bytes_from_host / host.memory_bytes_per_second;
    out.tokens_per_second = static_cast<double>(host.sequences) / seconds;
  }
  return out;
}

}  // namespace cachalot
