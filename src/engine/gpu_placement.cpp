#include "engine/gpu_placement.h"

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace cachalot {
namespace {

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.1f} GB", value / 1e9)
                                : fmt::format("{:.1f} MB", value / 1e6);
}

// What does not fit in what; to the byte where they would read alike.
std::pair<std::string, std::string> sizes_apart(int64_t one, int64_t other) {
  if (size_text(one) != size_text(other)) return {size_text(one), size_text(other)};
  return {fmt::format("{} bytes", one), fmt::format("{} bytes", other)};
}

}  // namespace

// Values in BF16. A picture of 4,096 patches has some rows of each kind at a time.
int64_t vision_memory(const ModelConfig& config) {
  if (!config.has_vision()) return 0;
  const int64_t dim = config.vision_dim, inner = config.vision_inter_dim;
  const int64_t cell = dim * config.vision_downsample_ratio * config.vision_downsample_ratio;
  const int64_t weights =
      config.vision_n_layers * (4 * dim * dim + 3 * dim * inner) + (cell + config.dim) * config.dim;
  const int64_t picture = 4096 * (6 * dim + 3 * inner + cell);
  return 2 * (weights + picture);
}

// The largest is what the experts of a step leave behind: a row of hidden values and one of outputs
// per token and choice. Scores of the index take at most 1 GiB.
int64_t kernel_memory(const ModelConfig& config, int64_t step_tokens) {
  const int64_t choices = config.n_activated_experts + 1;
  const int64_t row = choices * (2 * config.dim + 2 * config.moe_inter_dim) * 2;
  return (int64_t{3} << 29) + step_tokens * row;
}

std::vector<ExpertPlace> experts_by_use(const ModelWeights& weights, const ModelConfig& config,
                                        const ExpertProfile* profile) {
  std::vector<ExpertPlace> in_turn = experts_in_turn(weights, config.n_layers);
  if (profile == nullptr) return in_turn;
  std::vector<ExpertPlace> order;
  for (const auto& hot : hottest_first(*profile, config)) order.push_back({hot.layer, hot.expert});
  std::ranges::copy_if(in_turn, std::back_inserter(order), [&](const ExpertPlace& place) {
    return profile->tokens[place.layer][place.expert] == 0;
  });
  return order;
}

Result<WeightPlacement> place_on_gpu(const ModelWeights& weights, const ModelConfig& config,
                                     const EngineOptions& options, const cuda::DeviceInfo& device,
                                     int64_t caches, int64_t workspace,
                                     const ExpertProfile* profile) {
  const int64_t kernels = kernel_memory(config, options.max_step_tokens);
  const int64_t there = options.gpu_memory > 0 ? std::min(options.gpu_memory, device.free_memory)
                                               : device.free_memory;
  const int64_t besides = caches + workspace + kernels + vision_memory(config);
  WeightPlacement dense = place_dense_weights(weights);
  if (const int64_t least = dense.bytes + besides; least > there) {
    // What neither context nor sequences change.
    const bool too_small = dense.bytes + kernels + vision_memory(config) > there;
    const auto [needed, found] = sizes_apart(least, there);
    return fail(
        "{}: {} of weights that every token needs, {} of caches and {} of workspace and vision, "
        "{} in all, do not fit in {}{}: {}",
        device.name, size_text(dense.bytes), size_text(caches), size_text(besides - caches), needed,
        found, options.gpu_memory > 0 ? " (--gpu-memory)" : " of free memory",
        too_small ? "the model needs a GPU with more memory, or none (--device cpu)"
                  : "a shorter --context or fewer sequences take less");
  }
  if (options.experts_on == ExpertsOn::cpu) return dense;
  WeightPlacement placement =
      place_weights(weights, experts_by_use(weights, config, profile), there - besides);
  if (options.experts_on == ExpertsOn::gpu &&
      placement.experts_placed() < placement.experts_in_all()) {
    return fail("{}: {} hold {} of {} experts: --experts auto leaves the others to the CPU",
                device.name, size_text(there), placement.experts_placed(),
                placement.experts_in_all());
  }
  return placement;
}

std::string text_of(const WeightPlacement& placement) {
  const int64_t placed = placement.experts_placed(), all = placement.experts_in_all();
  if (placed == all) return "all experts";
  if (placed == 0) return "no experts";
  return fmt::format("{} of {} experts", placed, all);
}

std::string arithmetic_of(const WeightPlacement& placement) {
  if (placement.experts_placed() == placement.experts_in_all()) return {};
  std::string map;
  for (const std::vector<bool>& layer : placement.experts) {
    for (const bool placed : layer) map += placed ? '1' : '0';
  }
  return fmt::format(", experts {:016x}", hash64(std::as_bytes(std::span(map))));
}

}  // namespace cachalot
