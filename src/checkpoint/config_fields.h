// The one table that ties each member of ModelConfig to its key in both configuration files.
#pragma once

#include "checkpoint/config.h"

namespace cachalot {

// Where a nested key lives: the section of config.json.
enum class ConfigSection { top, text, rope_scaling, vision };

// When a key must be there. What is not needed keeps the member's default (spec: checkpoint, 1).
enum class Needed { always, never, with_candidates, with_engram, with_drafts, with_vision };

// visit(member, flat key, section, nested key, needed); an empty key: not in that form.
template <class Config, class Visit>
void visit_fields(Config& c, Visit&& visit) {
  using enum ConfigSection;
  using enum Needed;
  // What decides whether others are needed comes first.
  visit(c.candidate_source_layer, "candidate_source_layer", text, "candidate_source_layer_id",
        always);
  visit(c.engram_layer_ids, "engram_layer_ids", text, "engram_layer_ids", always);
  visit(c.n_mtp_layers, "n_mtp_layers", text, "num_nextn_predict_layers", always);
  visit(c.vision_n_layers, "vision_n_layers", vision, "num_hidden_layers", never);

  visit(c.vocab_size, "vocab_size", text, "vocab_size", always);
  visit(c.dim, "dim", text, "hidden_size", always);
  visit(c.moe_inter_dim, "moe_inter_dim", text, "moe_intermediate_size", always);
  visit(c.n_layers, "n_layers", text, "num_hidden_layers", always);
  visit(c.n_heads, "n_heads", text, "num_attention_heads", always);
  visit(c.head_dim, "head_dim", text, "head_dim", always);
  visit(c.rope_head_dim, "rope_head_dim", text, "qk_rope_head_dim", always);
  visit(c.q_lora_rank, "q_lora_rank", text, "q_lora_rank", always);
  visit(c.o_lora_rank, "o_lora_rank", text, "o_lora_rank", always);
  visit(c.o_groups, "o_groups", text, "o_groups", always);
  visit(c.norm_eps, "norm_eps", text, "rms_norm_eps", always);
  visit(c.swiglu_limit, "swiglu_limit", text, "swiglu_limit", always);
  visit(c.n_routed_experts, "n_routed_experts", text, "n_routed_experts", always);
  visit(c.n_shared_experts, "n_shared_experts", text, "n_shared_experts", never);
  visit(c.n_activated_experts, "n_activated_experts", text, "num_experts_per_tok", always);
  visit(c.route_scale, "route_scale", text, "routed_scaling_factor", always);
  visit(c.gate_temp, "gate_temp", text, "gate_temp", never);
  visit(c.window_size, "window_size", text, "sliding_window", always);
  visit(c.compress_ratios, "compress_ratios", text, "compress_ratios", always);
  visit(c.compress_rope_theta, "compress_rope_theta", text, "compress_rope_theta", always);
  visit(c.rope_theta, "rope_theta", text, "rope_theta", always);
  visit(c.rope_factor, "rope_factor", rope_scaling, "factor", always);
  visit(c.beta_fast, "beta_fast", rope_scaling, "beta_fast", always);
  visit(c.beta_slow, "beta_slow", rope_scaling, "beta_slow", always);
  visit(c.original_seq_len, "original_seq_len", rope_scaling, "original_max_position_embeddings",
        always);
  visit(c.kv_source_layers, "kv_source_layers", text, "kv_source_layer_ids", always);
  visit(c.index_source_layers, "index_source_layers", text, "index_source_layer_ids", always);
  visit(c.index_n_heads, "index_n_heads", text, "index_n_heads", always);
  visit(c.index_head_dim, "index_head_dim", text, "index_head_dim", always);
  visit(c.index_topk, "index_topk", text, "index_topk", always);
  visit(c.candidate_topk_blocks, "candidate_topk_blocks", text, "candidate_topk_blocks",
        with_candidates);
  visit(c.candidate_block_size, "candidate_block_size", text, "candidate_block_size",
        with_candidates);
  visit(c.hc_mult, "hc_mult", text, "hc_mult", always);
  visit(c.hc_sinkhorn_iters, "hc_sinkhorn_iters", text, "hc_sinkhorn_iters", always);
  visit(c.hc_eps, "hc_eps", text, "hc_eps", always);
  visit(c.max_position_embeddings, "", text, "max_position_embeddings", never);

  visit(c.engram_num_embeddings, "engram_num_embeddings", text, "engram_num_embeddings",
        with_engram);
  visit(c.engram_max_ngram_size, "engram_max_ngram_size", text, "engram_max_ngram_size",
        with_engram);
  visit(c.engram_vocab_size, "engram_vocab_size", text, "engram_vocab_size", with_engram);
  visit(c.engram_n_heads, "engram_n_heads", text, "engram_n_heads", with_engram);
  visit(c.engram_head_dim, "engram_head_dim", text, "engram_head_dim", with_engram);
  visit(c.engram_pad_id, "engram_pad_id", text, "engram_pad_token_id", with_engram);
  visit(c.engram_compressed_vocab_size, "engram_compressed_vocab_size", text,
        "engram_compressed_vocab_size", with_engram);

  visit(c.dspark_block_size, "dspark_block_size", text, "dspark_block_size", with_drafts);
  visit(c.dspark_noise_token_id, "dspark_noise_token_id", text, "dspark_noise_token_id",
        with_drafts);
  visit(c.dspark_target_layer_ids, "dspark_target_layer_ids", text, "dspark_target_layer_ids",
        with_drafts);
  visit(c.dspark_markov_rank, "dspark_markov_rank", text, "dspark_markov_rank", with_drafts);
  visit(c.dspark_n_routed_experts, "dspark_n_routed_experts", text, "dspark_n_routed_experts",
        with_drafts);
  visit(c.dspark_n_activated_experts, "dspark_n_activated_experts", text,
        "dspark_num_experts_per_tok", with_drafts);

  visit(c.image_token_id, "image_token_id", top, "image_token_id", with_vision);
  visit(c.vision_dim, "vision_dim", vision, "hidden_size", with_vision);
  visit(c.vision_n_heads, "vision_n_heads", vision, "num_attention_heads", with_vision);
  visit(c.vision_inter_dim, "vision_inter_dim", vision, "intermediate_size", with_vision);
  visit(c.vision_patch_size, "vision_patch_size", vision, "patch_size", with_vision);
  visit(c.vision_rope_theta, "vision_rope_theta", vision, "rope_theta", with_vision);
  visit(c.vision_downsample_ratio, "vision_downsample_ratio", vision, "downsample_ratio",
        with_vision);
  visit(c.vision_max_n_token, "vision_max_n_token", vision, "max_image_tokens", never);
  visit(c.vision_min_pixels, "vision_min_pixels", vision, "min_pixels", never);
  visit(c.vision_max_wh_ratio, "vision_max_wh_ratio", vision, "max_wh_ratio", never);

  visit(c.bos_token_id, "", top, "bos_token_id", never);
  visit(c.eos_token_id, "", top, "eos_token_id", never);
  visit(c.pad_token_id, "", top, "pad_token_id", never);
}

}  // namespace cachalot
