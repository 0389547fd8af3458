// What a checkpoint's configuration says, under the names of the flat inference keys.
//
// Two files can carry it: config.json (Hugging Face nesting, spec: model, section 1) and the flat
// inference_config.json or inference/config.json. config.json is preferred; what both hold must
// agree. docs/notation.md relates these names to the paper's symbols.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

struct ModelConfig {
  // The stack.
  int64_t vocab_size = 0;
  int64_t dim = 0;  // width of one copy of the residual stream
  int64_t n_layers = 0;
  int64_t max_position_embeddings = 1048576;
  float norm_eps = 0;   // 1e-20 in the release: representable in float, not in bf16 products
  int64_t hc_mult = 0;  // copies of the residual stream
  int64_t hc_sinkhorn_iters = 0;
  float hc_eps = 0;

  // Attention.
  int64_t n_heads = 0;
  int64_t head_dim = 0;
  int64_t rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  int64_t window_size = 0;
  std::vector<int64_t> compress_ratios;   // [n_layers + n_mtp_layers], 0: window only
  std::vector<int64_t> kv_source_layers;  // layers that own compressed rows, ascending
  double compress_rope_theta = 0;
  double rope_theta = 0;
  double rope_factor = 0;
  double beta_fast = 0;
  double beta_slow = 0;
  int64_t original_seq_len = 0;  // 0: no YaRN

  // Indexer.
  std::vector<int64_t> index_source_layers;  // layers that select rows, ascending
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer = -1;  // -1: one level only
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;

  // Experts.
  int64_t moe_inter_dim = 0;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 1;
  int64_t n_activated_experts = 0;
  float route_scale = 0;
  float gate_temp = 1;
  float swiglu_limit = 0;

  // Engram.
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows of each of those layers
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;  // bucket size: the primes lie above it
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_pad_id = 0;
  int64_t engram_compressed_vocab_size = 0;

  // Draft stages.
  int64_t n_mtp_layers = 0;
  int64_t dspark_block_size = 0;
  int64_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;  // layers whose input the drafts see
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_n_activated_experts = 0;

  // Vision; vision_n_layers is 0 in a text-only checkpoint.
  int64_t image_token_id = -1;
  int64_t vision_n_layers = 0;
  int64_t vision_dim = 0;
  int64_t vision_n_heads = 0;
  int64_t vision_inter_dim = 0;
  int64_t vision_patch_size = 0;
  double vision_rope_theta = 0;
  int64_t vision_downsample_ratio = 0;
  int64_t vision_max_n_token = 1024;
  int64_t vision_min_pixels = 295936;
  std::optional<double> vision_max_wh_ratio;

  int64_t bos_token_id = 0;
  int64_t eos_token_id = 1;
  int64_t pad_token_id = 2;

  // Keys nobody reads, as "file: key". They change nothing, and are worth a line in the log.
  std::vector<std::string> unknown_keys;

  bool has_vision() const { return vision_n_layers > 0; }
  bool has_drafts() const { return n_mtp_layers > 0; }
  bool has_candidates() const { return candidate_source_layer >= 0; }
  bool has_yarn() const { return original_seq_len > 0; }
  // Rows of hc_*_fn: one pre and one post per copy, and a square of mixing coefficients.
  int64_t hc_mixes() const { return (2 + hc_mult) * hc_mult; }

  // Layers count through the draft stages: stage s is layer n_layers + s.
  int64_t ratio(int64_t layer) const { return compress_ratios[static_cast<size_t>(layer)]; }
  bool is_kv_source(int64_t layer) const;
  bool is_index_source(int64_t layer) const;
  // The layer whose compressed rows, or whose selection, this layer uses; -1: none below it.
  int64_t kv_source_of(int64_t layer) const;
  int64_t index_source_of(int64_t layer) const;
  // Position of the layer in engram_layer_ids; -1: no engram there.
  int64_t engram_index(int64_t layer) const;
};

// Reads and validates the configuration of a checkpoint folder.
// Errors: file, key, what was expected, what was found.
Result<ModelConfig> load_config(const std::filesystem::path& folder);

// The same from one file's text of either form (a text_config key makes it the nested one).
// `name` stands in errors.
Result<ModelConfig> parse_config(std::string_view text, std::string_view name);

// Every rule the parts of a configuration must keep with each other (spec: checkpoint, 7.5),
// whatever file they came from.
Status validate(const ModelConfig& config);

// Both forms as JSON text; parse_config of either gives the same configuration again.
std::string nested_config_text(const ModelConfig& config);
std::string flat_config_text(const ModelConfig& config);

}  // namespace cachalot
