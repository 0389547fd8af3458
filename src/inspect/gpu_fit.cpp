#include "inspect/gpu_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/checkpoint.h"
#include "engine/gpu_placement.h"
#include "model/caches.h"
#include "model/decoder.h"

namespace cachalot {
namespace {

// What a step reads of what any layer reads.
double bytes_always(const ModelConfig& config, const FitRequest& host) {
  const auto sequences = static_cast<double>(host.sequences);
  double bytes = sequences * static_cast<double>(cache_bytes_read(config, host.context));
  for (const FitPart& part : checkpoint_parts(config)) {
    if (part.kind == FitPart::Kind::dense) bytes += static_cast<double>(part.bytes);
    if (part.kind == FitPart::Kind::rows) {
      bytes += sequences * static_cast<double>(part.bytes_per_token);
    }
  }
  return bytes;
}

// Of one layer. The GPU computes it beside the experts.
double bytes_of_shared_expert(const ModelConfig& config) {
  for (const FitPart& part : checkpoint_parts(config)) {
    if (part.name != "shared experts") continue;
    return static_cast<double>(part.bytes) / static_cast<double>(config.n_layers);
  }
  return 0;
}

double bytes_of_one_expert(const ModelConfig& config) {
  for (const FitPart& part : checkpoint_parts(config)) {
    if (part.kind != FitPart::Kind::experts) continue;
    return static_cast<double>(part.bytes) /
           static_cast<double>(config.n_routed_experts * config.n_layers);
  }
  return 0;
}

// Of the host's tables, and what a token looks up of them.
struct TablesOfHost {
  int64_t bytes = 0, bytes_per_token = 0;
};

TablesOfHost tables_of_host(const ModelConfig& config, const WeightPlacement& placement) {
  TablesOfHost out;
  const auto all = static_cast<int64_t>(config.engram_layer_ids.size());
  const int64_t beside = all - std::ranges::count(placement.tables, true);
  for (const FitPart& part : checkpoint_parts(config)) {
    if (part.name != "engram tables") continue;
    out = {part.bytes / all * beside, part.bytes_per_token / all * beside};
  }
  return out;
}

// What is not on the GPU.
HostPart part_of_host(const ModelConfig& config, const FitRequest& host, const GpuFit& fit,
                      ExpertsOn experts_on, int64_t tables) {
  const auto expert = static_cast<int64_t>(bytes_of_one_expert(config));
  HostPart part{.rows = tables};
  int64_t of_drafts = 0;
  for (size_t layer = 0; layer < fit.placement.experts.size(); ++layer) {
    const int64_t beside = expert * std::ranges::count(fit.placement.experts[layer], false);
    (layer < static_cast<size_t>(config.n_layers) ? part.experts : of_drafts) += beside;
  }
  if (experts_on == ExpertsOn::streamed) {
    part.resident = fit.experts_of_host;
    part.experts = 0;
  } else {
    if (host.drafts) part.resident = of_drafts;
    if (part.experts > 0) part.chosen_of_layer = config.n_activated_experts * expert;
  }
  return part;
}

// By expert of a layer, the part of tokens that choose it.
std::vector<double> shares(const ModelConfig& config, const ExpertProfile* profile, size_t layer) {
  const auto experts = static_cast<size_t>(config.n_routed_experts);
  const auto chosen = static_cast<double>(config.n_activated_experts);
  std::vector<double> out(experts, chosen / static_cast<double>(experts));
  if (profile == nullptr) return out;
  const std::vector<int64_t>& counts = profile->tokens[layer];
  const double choices = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (choices == 0) return out;
  for (size_t e = 0; e < experts; ++e) {
    out[e] = std::min(1.0, chosen * static_cast<double>(counts[e]) / choices);
  }
  return out;
}

// Experts of one layer that a step reads, and choices, of both memories.
struct LayerUse {
  double experts_on_gpu = 0, experts_beside = 0;
  double choices_on_gpu = 0, choices = 0;
};

LayerUse use_of(const std::vector<double>& shares, const std::vector<bool>& placed,
                int64_t tokens) {
  LayerUse use;
  for (size_t e = 0; e < shares.size(); ++e) {
    const double read = 1 - std::pow(1 - shares[e], static_cast<double>(tokens));
    (placed[e] ? use.experts_on_gpu : use.experts_beside) += read;
    use.choices += shares[e];
    if (placed[e]) use.choices_on_gpu += shares[e];
  }
  return use;
}

}  // namespace

int64_t GpuFit::layers_on_gpu() const {
  return std::ranges::count_if(placement.experts, [](const std::vector<bool>& layer) {
    return std::ranges::all_of(layer, std::identity());
  });
}

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
  options.experts_on = gpu.experts_on;
  options.gpu_memory = gpu.memory;
  const cuda::DeviceInfo device{
      .name = "the GPU", .memory = gpu.memory, .free_memory = gpu.memory, .multiprocessors = 0};
  CACHALOT_TRY(out.placement,
               place_on_gpu(weights, config, options, device, out.caches, arena, gpu.profile));
  estimate_speed(out, config, host, gpu);
  return out;
}

void estimate_speed(GpuFit& fit, const ModelConfig& config, const FitRequest& host,
                    const GpuFitRequest& gpu) {
  const bool streamed = gpu.experts_on == ExpertsOn::streamed;
  const double beside = streamed ? gpu.bus_bytes_per_second : host.memory_bytes_per_second;
  const double expert = bytes_of_one_expert(config), shared = bytes_of_shared_expert(config);
  fit.experts_of_host = static_cast<int64_t>(expert) *
                        (fit.placement.experts_in_all() - fit.placement.experts_placed());
  const TablesOfHost tables = tables_of_host(config, fit.placement);
  fit.host =
      divide_memory(host.memory, part_of_host(config, host, fit, gpu.experts_on, tables.bytes));
  const bool disk_known = host.disk_bytes_per_second > 0;
  const auto seconds_from_disk = [&](double bytes) {
    fit.bytes_from_disk += bytes;
    return disk_known ? bytes / host.disk_bytes_per_second : 0;
  };
  fit.bytes_from_gpu = bytes_always(config, host);
  fit.bytes_from_disk = fit.bytes_from_host = fit.choices_on_gpu = fit.tokens_per_second = 0;
  const double besides_experts = fit.bytes_from_gpu - static_cast<double>(config.n_layers) * shared;
  double seconds = besides_experts / gpu.bytes_per_second, choices = 0;
  seconds += seconds_from_disk(fit.host.rows_missed() *
                               static_cast<double>(host.sequences * tables.bytes_per_token));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const LayerUse use =
        use_of(shares(config, gpu.profile, layer), fit.placement.experts[layer], host.sequences);
    fit.bytes_from_gpu += use.experts_on_gpu * expert;
    const double bytes_beside = use.experts_beside * expert;
    fit.bytes_from_host += bytes_beside;
    fit.choices_on_gpu += use.choices_on_gpu;
    choices += use.choices;
    const double here = (shared + use.experts_on_gpu * expert) / gpu.bytes_per_second;
    const double there =
        bytes_beside > 0
            ? bytes_beside / beside + seconds_from_disk(fit.host.experts_missed() * bytes_beside)
            : 0;
    seconds += std::max(here, there);
  }
  fit.choices_on_gpu /= choices;
  if (fit.host.fits && gpu.bytes_per_second > 0 && (fit.bytes_from_host == 0 || beside > 0) &&
      (fit.host.experts_on_disk == 0 || disk_known)) {
    fit.tokens_per_second = static_cast<double>(host.sequences) / seconds;
  }
}

}  // namespace cachalot
