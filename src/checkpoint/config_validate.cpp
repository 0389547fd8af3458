// The rules the parts of a configuration keep with each other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/config.h"
#include "checkpoint/engram_layout.h"
#include "tensor/matrix.h"

namespace cachalot {
namespace {

// Far above any model, low enough that products of two extents stay below 2^63.
constexpr int64_t kLargestExtent = int64_t{1} << 30;
constexpr int64_t kLargestLayers = 4096;
// Bounds the number of tensors, so that a hostile file cannot make the table of them fill memory.
constexpr int64_t kLargestExperts = int64_t{1} << 16;  // of all layers; the release has 15360
// What the kernels keep in registers or on the stack: backend/cpu holds each of these as an array.
constexpr int64_t kLargestCopies = 8;          // the release: 4
constexpr int64_t kLargestIndexHeads = 128;    // 32
constexpr int64_t kLargestRotatedWidth = 512;  // 64
constexpr int64_t kLargestRatio = 64;          // 2
// A cache page holds whole groups of every ratio.
constexpr int64_t kLargestCommonMultiple = 4096;

std::string listed(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

Status check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return fail("{}: expected {} to {}, found {}", name, low, high, value);
}

Status check_divides(std::string_view name, int64_t value, int64_t divisor) {
  if (value % divisor == 0) return {};
  return fail("{}: expected a multiple of {}, found {}", name, divisor, value);
}

// Ids strictly ascending within [0, count).
Status check_ascending(std::string_view name, const std::vector<int64_t>& ids, int64_t count) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= count || (i > 0 && ids[i] <= ids[i - 1])) {
      return fail("{}: expected ascending layers below {}, found {}", name, count, listed(ids));
    }
  }
  return {};
}

Status check_extents(const ModelConfig& c) {
  CACHALOT_OK(check_range("n_layers", c.n_layers, 1, kLargestLayers));
  CACHALOT_OK(check_range("n_mtp_layers", c.n_mtp_layers, 0, kLargestLayers));
  const std::pair<const char*, int64_t> positive[] = {
      {"vocab_size", c.vocab_size},
      {"dim", c.dim},
      {"n_heads", c.n_heads},
      {"head_dim", c.head_dim},
      {"rope_head_dim", c.rope_head_dim},
      {"q_lora_rank", c.q_lora_rank},
      {"o_lora_rank", c.o_lora_rank},
      {"o_groups", c.o_groups},
      {"window_size", c.window_size},
      {"moe_inter_dim", c.moe_inter_dim},
      {"index_n_heads", c.index_n_heads},
      {"index_head_dim", c.index_head_dim},
      {"index_topk", c.index_topk},
      {"hc_sinkhorn_iters", c.hc_sinkhorn_iters},
      {"n_routed_experts", c.n_routed_experts},
      {"max_position_embeddings", c.max_position_embeddings},
  };
  for (const auto& [name, value] : positive) {
    CACHALOT_OK(check_range(name, value, 1, kLargestExtent));
  }
  CACHALOT_OK(check_range("hc_mult", c.hc_mult, 1, kLargestCopies));
  CACHALOT_OK(check_range("index_n_heads", c.index_n_heads, 1, kLargestIndexHeads));
  CACHALOT_OK(check_range("n_shared_experts", c.n_shared_experts, 1, 1));
  CACHALOT_OK(check_range("n_activated_experts", c.n_activated_experts, 1, c.n_routed_experts));
  CACHALOT_OK(check_range("n_layers * n_routed_experts", c.n_layers * c.n_routed_experts, 1,
                          kLargestExperts));
  CACHALOT_OK(check_range("n_heads * head_dim", c.n_heads * c.head_dim, 1, kLargestExtent));
  CACHALOT_OK(check_range("o_groups * o_lora_rank", c.o_groups * c.o_lora_rank, 1, kLargestExtent));
  CACHALOT_OK(check_range("index_n_heads * index_head_dim", c.index_n_heads * c.index_head_dim, 1,
                          kLargestExtent));
  CACHALOT_OK(check_range("rope_head_dim", c.rope_head_dim, 2,
                          std::min({c.head_dim, c.index_head_dim, kLargestRotatedWidth})));
  CACHALOT_OK(check_divides("rope_head_dim", c.rope_head_dim, 2));
  CACHALOT_OK(check_divides("n_heads (over o_groups)", c.n_heads, c.o_groups));
  for (const auto& [name, value] : {std::pair{"dim", c.dim},
                                    {"head_dim", c.head_dim},
                                    {"q_lora_rank", c.q_lora_rank},
                                    {"o_lora_rank", c.o_lora_rank},
                                    {"moe_inter_dim", c.moe_inter_dim},
                                    {"index_head_dim", c.index_head_dim}}) {
    CACHALOT_OK(check_divides(name, value, kScaleBlock));
  }
  return {};
}

Status check_numbers(const ModelConfig& c) {
  const std::pair<const char*, double> positive[] = {
      {"norm_eps", c.norm_eps},
      {"hc_eps", c.hc_eps},
      {"swiglu_limit", c.swiglu_limit},
      {"route_scale", c.route_scale},
      {"gate_temp", c.gate_temp},
      {"rope_theta", c.rope_theta},
      {"compress_rope_theta", c.compress_rope_theta},
  };
  for (const auto& [name, value] : positive) {
    if (!(value > 0)) return fail("{}: expected more than 0, found {}", name, value);
  }
  CACHALOT_OK(check_range("original_seq_len", c.original_seq_len, 0, kLargestExtent));
  if (c.has_yarn() && !(c.rope_factor >= 1 && c.beta_fast > c.beta_slow && c.beta_slow > 0)) {
    return fail(
        "rope_scaling: expected factor >= 1 and beta_fast > beta_slow > 0, found {}, {}, {}",
        c.rope_factor, c.beta_fast, c.beta_slow);
  }
  const std::pair<const char*, int64_t> tokens[] = {{"bos_token_id", c.bos_token_id},
                                                    {"eos_token_id", c.eos_token_id},
                                                    {"pad_token_id", c.pad_token_id}};
  for (const auto& [name, id] : tokens) CACHALOT_OK(check_range(name, id, 0, c.vocab_size - 1));
  return {};
}

Status check_sources(const ModelConfig& c) {
  const int64_t entries = c.n_layers + c.n_mtp_layers;
  if (static_cast<int64_t>(c.compress_ratios.size()) != entries) {
    return fail("compress_ratios: expected {} entries ({} layers and {} draft stages), found {}",
                entries, c.n_layers, c.n_mtp_layers, c.compress_ratios.size());
  }
  CACHALOT_OK(check_ascending("kv_source_layers", c.kv_source_layers, c.n_layers));
  CACHALOT_OK(check_ascending("index_source_layers", c.index_source_layers, c.n_layers));
  for (int64_t layer = 0; layer < entries; ++layer) {
    const int64_t ratio = c.ratio(layer);
    const int64_t largest = layer < c.n_layers ? kLargestRatio : 0;
    CACHALOT_OK(check_range(fmt::format("compress_ratios[{}]", layer), ratio, 0, largest));
    if (ratio == 0) continue;
    const int64_t owner = c.kv_source_of(layer);
    if (owner < 0 || c.ratio(owner) != ratio) {
      return fail(
          "kv_source_layers: layer {} has ratio {}: expected a source of that ratio at or below "
          "it, "
          "found {}",
          layer, ratio,
          owner < 0 ? "none" : fmt::format("layer {} of ratio {}", owner, c.ratio(owner)));
    }
  }
  for (const auto* sources : {&c.kv_source_layers, &c.index_source_layers}) {
    for (int64_t layer : *sources) {
      if (c.ratio(layer) == 0) {
        return fail("{}: layer {} has compress ratio 0, expected a compressed layer",
                    sources == &c.kv_source_layers ? "kv_source_layers" : "index_source_layers",
                    layer);
      }
    }
  }
  // A selection names rows of one owner's cache, so a new owner needs a new selection. The first
  // index source being the first KV source follows from this and from the ratios above.
  int64_t common = 1;
  for (int64_t layer : c.kv_source_layers) {
    common = std::lcm(common, c.ratio(layer));
    CACHALOT_OK(check_range("compress_ratios (their least common multiple)", common, 1,
                            kLargestCommonMultiple));
    if (!c.is_index_source(layer)) {
      return fail("index_source_layers: expected KV source {} among them, found {}", layer,
                  listed(c.index_source_layers));
    }
  }
  return {};
}

Status check_candidates(const ModelConfig& c) {
  if (!c.has_candidates()) return {};
  if (!c.is_index_source(c.candidate_source_layer)) {
    return fail("candidate_source_layer: expected one of the index sources {} (or -1), found {}",
                listed(c.index_source_layers), c.candidate_source_layer);
  }
  CACHALOT_OK(check_range("candidate_topk_blocks", c.candidate_topk_blocks, 1, kLargestExtent));
  return check_range("candidate_block_size", c.candidate_block_size, 1, kLargestExtent);
}

Status check_engram(const ModelConfig& c) {
  CACHALOT_OK(check_ascending("engram_layer_ids", c.engram_layer_ids, c.n_layers));
  const size_t layers = c.engram_layer_ids.size();
  if (c.engram_num_embeddings.size() != layers) {
    return fail("engram_num_embeddings: expected {} entries, one per engram layer, found {}",
                layers, c.engram_num_embeddings.size());
  }
  if (layers == 0) return {};
  CACHALOT_OK(check_range("engram_max_ngram_size", c.engram_max_ngram_size, 2, 16));
  CACHALOT_OK(check_range("engram_n_heads", c.engram_n_heads, 1, 256));
  CACHALOT_OK(check_range("engram_layer_ids (their number)", static_cast<int64_t>(layers), 1, 64));
  CACHALOT_OK(check_range("engram_head_dim", c.engram_head_dim, 1, 1 << 16));
  CACHALOT_OK(check_divides("engram_head_dim", c.engram_head_dim, kScaleBlock));
  CACHALOT_OK(check_range("engram_vocab_size", c.engram_vocab_size, 2, kLargestExtent));
  CACHALOT_OK(check_range("engram_pad_id", c.engram_pad_id, 0, c.vocab_size - 1));
  CACHALOT_OK(
      check_range("engram_compressed_vocab_size", c.engram_compressed_vocab_size, 1, c.vocab_size));
  const EngramLayout layout = engram_layout(c);
  for (size_t i = 0; i < layers; ++i) {
    if (c.engram_num_embeddings[i] != layout.rows[i]) {
      return fail(
          "engram_num_embeddings of layer {}: expected {}, the sum of its {} primes above "
          "engram_vocab_size {}, found {}",
          c.engram_layer_ids[i], layout.rows[i], layout.offsets[i].size(), c.engram_vocab_size,
          c.engram_num_embeddings[i]);
    }
  }
  return {};
}

Status check_drafts(const ModelConfig& c) {
  if (!c.has_drafts()) return {};
  CACHALOT_OK(check_range("dspark_block_size", c.dspark_block_size, 1, 64));
  CACHALOT_OK(check_range("dspark_noise_token_id", c.dspark_noise_token_id, 0, c.vocab_size - 1));
  CACHALOT_OK(check_ascending("dspark_target_layer_ids", c.dspark_target_layer_ids, c.n_layers));
  CACHALOT_OK(check_range("dspark_target_layer_ids (their number)",
                          static_cast<int64_t>(c.dspark_target_layer_ids.size()), 1, c.n_layers));
  CACHALOT_OK(check_range("dspark_markov_rank", c.dspark_markov_rank, 1, kLargestExtent));
  CACHALOT_OK(
      check_range("dspark_n_routed_experts", c.dspark_n_routed_experts, 1, kLargestExperts));
  CACHALOT_OK(check_range("dspark_n_routed_experts * n_mtp_layers",
                          c.dspark_n_routed_experts * c.n_mtp_layers, 1, kLargestExperts));
  return check_range("dspark_n_activated_experts", c.dspark_n_activated_experts, 1,
                     c.dspark_n_routed_experts);
}

Status check_vision(const ModelConfig& c) {
  CACHALOT_OK(check_range("vision_n_layers", c.vision_n_layers, 0, kLargestLayers));
  if (!c.has_vision()) return {};
  CACHALOT_OK(check_range("image_token_id", c.image_token_id, 0, c.vocab_size - 1));
  CACHALOT_OK(check_range("vision_dim", c.vision_dim, 1, 1 << 20));
  CACHALOT_OK(check_range("vision_n_heads", c.vision_n_heads, 1, c.vision_dim));
  CACHALOT_OK(check_divides("vision_dim (over vision_n_heads)", c.vision_dim, c.vision_n_heads));
  // The head's dimension splits over two axes, and each half rotates in pairs.
  CACHALOT_OK(check_divides("vision_dim / vision_n_heads", c.vision_dim / c.vision_n_heads, 4));
  CACHALOT_OK(check_range("vision_inter_dim", c.vision_inter_dim, 1, 1 << 20));
  CACHALOT_OK(check_range("vision_patch_size", c.vision_patch_size, 1, 1024));
  CACHALOT_OK(check_range("vision_downsample_ratio", c.vision_downsample_ratio, 1, 16));
  CACHALOT_OK(check_range("vision_max_n_token", c.vision_max_n_token, 1, 1 << 20));
  CACHALOT_OK(check_range("vision_min_pixels", c.vision_min_pixels, 0, kLargestExtent));
  if (!(c.vision_rope_theta > 0)) {
    return fail("vision_rope_theta: expected more than 0, found {}", c.vision_rope_theta);
  }
  if (c.vision_max_wh_ratio && !(*c.vision_max_wh_ratio >= 1)) {
    return fail("vision_max_wh_ratio: expected null or at least 1, found {}",
                *c.vision_max_wh_ratio);
  }
  return {};
}

}  // namespace

Status validate(const ModelConfig& config) {
  CACHALOT_OK(check_extents(config));
  CACHALOT_OK(check_numbers(config));
  CACHALOT_OK(check_sources(config));
  CACHALOT_OK(check_candidates(config));
  CACHALOT_OK(check_engram(config));
  CACHALOT_OK(check_drafts(config));
  return check_vision(config);
}

}  // namespace cachalot
