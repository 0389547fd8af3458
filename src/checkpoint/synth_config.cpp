// Cutting a configuration down to what a random checkpoint shall hold.
#include <algorithm>

#include "base/mapped_file.h"
#include "checkpoint/engram_layout.h"
#include "checkpoint/synth.h"
#include "tensor/matrix.h"

namespace cachalot {
namespace {

void keep_below(std::vector<int64_t>& layers, int64_t limit) {
  std::erase_if(layers, [&](int64_t layer) { return layer >= limit; });
}

void drop_drafts(ModelConfig& c) {
  c.compress_ratios.resize(static_cast<size_t>(c.n_layers));
  c.n_mtp_layers = 0;
  c.dspark_target_layer_ids.clear();
}

void cut_layers(ModelConfig& c, int64_t layers) {
  c.compress_ratios.erase(c.compress_ratios.begin() + layers,
                          c.compress_ratios.begin() + c.n_layers);
  c.n_layers = layers;
  keep_below(c.kv_source_layers, layers);
  keep_below(c.index_source_layers, layers);
  keep_below(c.dspark_target_layer_ids, layers);
  keep_below(c.engram_layer_ids, layers);
  if (c.candidate_source_layer >= layers) c.candidate_source_layer = -1;
  if (c.dspark_target_layer_ids.empty()) drop_drafts(c);
}

void cut_experts(ModelConfig& c, int64_t experts) {
  c.n_routed_experts = experts;
  c.n_activated_experts = std::min(c.n_activated_experts, experts);
  c.dspark_n_routed_experts = std::min(c.dspark_n_routed_experts, experts);
  c.dspark_n_activated_experts = std::min(c.dspark_n_activated_experts, c.dspark_n_routed_experts);
}

int64_t engram_bytes(const ModelConfig& c) {
  int64_t bytes = 0;
  for (int64_t rows : c.engram_num_embeddings) {
    bytes += rows * (c.engram_head_dim + c.engram_head_dim / kScaleBlock);
  }
  return bytes;
}

void set_engram_rows(ModelConfig& c, std::optional<int64_t> bucket) {
  if (bucket) c.engram_vocab_size = *bucket;
  c.engram_num_embeddings = engram_layout(c).rows;
  if (bucket) return;
  // Buckets are primes a little above the size asked for; a few steps of a hundredth settle it.
  while (c.engram_vocab_size > 2 && engram_bytes(c) > kEngramBytes) {
    const double ratio = static_cast<double>(kEngramBytes) / static_cast<double>(engram_bytes(c));
    const double wanted = static_cast<double>(c.engram_vocab_size) * std::min(ratio, 0.99);
    c.engram_vocab_size = std::max<int64_t>(2, static_cast<int64_t>(wanted));
    c.engram_num_embeddings = engram_layout(c).rows;
  }
}

Status check_option(std::string_view name, std::optional<int64_t> value, int64_t low,
                    int64_t high) {
  if (!value || (*value >= low && *value <= high)) return {};
  return fail("{}: expected {} to {}, found {}", name, low, high, *value);
}

}  // namespace

Result<ModelConfig> reduced_config(ModelConfig config, const SynthReduction& reduction) {
  CACHALOT_OK(check_option("layers", reduction.layers, 1, config.n_layers));
  CACHALOT_OK(check_option("experts", reduction.experts, 1, 65536));
  CACHALOT_OK(check_option("engram-rows", reduction.engram_rows, 2, int64_t{1} << 30));
  if (reduction.layers) cut_layers(config, *reduction.layers);
  if (reduction.experts) cut_experts(config, *reduction.experts);
  set_engram_rows(config, reduction.engram_rows);
  config.unknown_keys.clear();
  CACHALOT_OK(validate(config));
  return config;
}

Result<ModelConfig> config_at(const std::filesystem::path& path) {
  std::error_code ignored;  // what cannot be looked at cannot be read either
  if (std::filesystem::is_directory(path, ignored)) return load_config(path);
  CACHALOT_TRY(const std::string text, read_text_file(path));
  return parse_config(text, path.string());
}

}  // namespace cachalot
