#include "engine/stored_weights.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "engine/expert_profile.h"

namespace cachalot {
namespace {

std::span<const std::byte> bytes_of(View<const uint8_t> view) {
  return std::as_bytes(std::span(view.data, static_cast<size_t>(view.elements())));
}

// In the order cpu::moe_experts takes them back.
MappedExpert mapped(const ExpertMatrices& expert) {
  return {bytes_of(expert.w1.codes),  bytes_of(expert.w1.scales), bytes_of(expert.w2.codes),
          bytes_of(expert.w2.scales), bytes_of(expert.w3.codes),  bytes_of(expert.w3.scales)};
}

}  // namespace

StoredWeights stored_weights(const Checkpoint& checkpoint, const ModelWeights& weights) {
  StoredWeights stored;
  for (const ShardFile& file : checkpoint.files()) {
    stored.files.push_back({file.path, file.mapping.bytes()});
  }
  for (const LayerWeights& layer : weights.layers) {
    auto& experts = stored.layers.emplace_back();
    std::ranges::transform(layer.experts.experts, std::back_inserter(experts), mapped);
    if (!layer.engram) continue;
    stored.tables.push_back({bytes_of(layer.engram->codes), bytes_of(layer.engram->scales),
                             layer.engram->codes.extent(0)});
  }
  return stored;
}

Result<int64_t> least_expert_cache(const Checkpoint& checkpoint) {
  CACHALOT_TRY(const ModelWeights weights, ModelWeights::bind(checkpoint));
  const StoredWeights stored = stored_weights(checkpoint, weights);
  return ExpertCache::least_bytes(FileMap(stored.files), stored.layers);
}

Result<std::unique_ptr<WeightStore>> open_weight_store(const Checkpoint& checkpoint,
                                                       const ModelWeights& weights,
                                                       const EngineOptions& options) {
  const StoredWeights stored = stored_weights(checkpoint, weights);
  if (!options.storage.row_bytes) {
    for (const MappedTable& table : stored.tables) {
      expect_random_reads(table.codes);
      expect_random_reads(table.scales);
    }
  }
  if (!options.storage.expert_bytes && !options.storage.row_bytes) return nullptr;
  if (options.backend == Backend::reference) {
    return fail("an expert or engram cache: expected the cpu backend, found reference");
  }
  return WeightStore::open(stored, options.storage);
}

Status pin_experts(ExpertCache& cache, const ModelConfig& config, const ExpertProfile& profile,
                   const WeightPlacement* elsewhere) {
  std::vector<ExpertCache::HotExpert> hot = hottest_first(profile, config);
  if (elsewhere != nullptr) {
    std::erase_if(hot,
                  [&](const auto& entry) { return elsewhere->experts[entry.layer][entry.expert]; });
  }
  if (auto pinned = cache.pin(hot, config.n_activated_experts); !pinned) {
    return fail(pinned.error().in("reading the experts of the profile"));
  }
  return {};
}

}  // namespace cachalot
