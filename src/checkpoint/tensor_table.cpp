#include "checkpoint/tensor_table.h"

#include "base/check.h"
#include "tensor/matrix.h"

namespace cachalot {
namespace {

class TableBuilder {
 public:
  explicit TableBuilder(const ModelConfig& config) : c_(config) {}

  std::vector<TensorSpec> build() {
    if (c_.has_vision()) {
      vision();
      ++shard_;
    }
    put("embed.weight", DType::bf16, {c_.vocab_size, c_.dim});
    if (c_.has_vision()) {
      for (const char* name : {"image_start", "image_end", "image_newline"}) {
        put(name, DType::bf16, {c_.dim});
      }
    }
    for (int64_t layer = 0; layer < c_.n_layers; ++layer) {
      ++shard_;
      block(fmt::format("layers.{}", layer), c_.n_routed_experts, layer);
    }
    ++shard_;
    put("head.weight", DType::bf16, {c_.vocab_size, c_.dim});
    norm("norm", c_.dim);
    for (int64_t stage = 0; stage < c_.n_mtp_layers; ++stage) {
      ++shard_;
      draft_stage(stage);
    }
    for (size_t i = 0; i < c_.engram_layer_ids.size(); ++i) {
      ++shard_;
      engram(fmt::format("layers.{}.engram", c_.engram_layer_ids[i]), c_.engram_num_embeddings[i]);
    }
    return std::move(table_);
  }

 private:
  void put(std::string name, DType dtype, Shape shape) {
    table_.push_back({std::move(name), dtype, shape, shard_});
  }
  void norm(const std::string& name, int64_t width) { put(name + ".weight", DType::bf16, {width}); }
  void bf16_matrix(const std::string& name, int64_t rows, int64_t columns, bool bias = false) {
    put(name + ".weight", DType::bf16, {rows, columns});
    if (bias) put(name + ".bias", DType::bf16, {rows});
  }
  void fp8_matrix(const std::string& name, int64_t rows, int64_t columns) {
    put(name + ".scale", DType::f8_e8m0, {blocks_of(rows), blocks_of(columns)});
    put(name + ".weight", DType::f8_e4m3, {rows, columns});
  }

  void attention(const std::string& p, int64_t layer) {
    const int64_t heads_width = c_.n_heads * c_.head_dim;
    put(p + ".attn_sink", DType::f32, {c_.n_heads});
    norm(p + ".q_norm", c_.q_lora_rank);
    norm(p + ".kv_norm", c_.head_dim);
    fp8_matrix(p + ".wq_a", c_.q_lora_rank, c_.dim);
    fp8_matrix(p + ".wq_b", heads_width, c_.q_lora_rank);
    fp8_matrix(p + ".wkv", c_.head_dim, c_.dim);
    fp8_matrix(p + ".wo_a", c_.o_groups * c_.o_lora_rank, heads_width / c_.o_groups);
    fp8_matrix(p + ".wo_b", c_.dim, c_.o_groups * c_.o_lora_rank);
    if (c_.is_kv_source(layer)) {
      bf16_matrix(p + ".compressor.wkv", c_.head_dim, c_.dim);
      norm(p + ".compressor.norm", c_.head_dim);
      if (c_.ratio(layer) > 1) bf16_matrix(p + ".compressor.wgate", c_.head_dim, c_.dim);
      bf16_matrix(p + ".indexer.wk", c_.index_head_dim, c_.head_dim);
      norm(p + ".indexer.k_norm", c_.index_head_dim);
    }
    if (c_.is_index_source(layer)) {
      fp8_matrix(p + ".indexer.wq_b", c_.index_n_heads * c_.index_head_dim, c_.q_lora_rank);
      bf16_matrix(p + ".indexer.weights_proj", c_.index_n_heads, c_.dim);
    }
  }

  void experts(const std::string& p, int64_t count) {
    const int64_t width = c_.moe_inter_dim;
    struct Part {
      const char* name;
      int64_t rows, columns;
    };
    const Part parts[] = {{"w1", width, c_.dim}, {"w2", c_.dim, width}, {"w3", width, c_.dim}};
    for (int64_t expert = 0; expert < count; ++expert) {
      for (const auto& [name, rows, columns] : parts) {
        put(fmt::format("{}.experts.{}.{}.scale", p, expert, name), DType::f8_e8m0,
            {rows, columns / kScaleBlock});
      }
    }
    for (int64_t expert = 0; expert < count; ++expert) {
      for (const auto& [name, rows, columns] : parts) {
        put(fmt::format("{}.experts.{}.{}.weight", p, expert, name), DType::i8,
            {rows, columns / 2});
      }
    }
    for (const auto& [name, rows, columns] : parts) {
      fp8_matrix(fmt::format("{}.shared_experts.{}", p, name), rows, columns);
    }
  }

  // A layer of the stack or a draft stage, the latter counted on from n_layers.
  void block(const std::string& p, int64_t expert_count, int64_t layer) {
    for (const char* kind : {"attn", "ffn"}) {
      put(fmt::format("{}.hc_{}_fn", p, kind), DType::f32, {c_.hc_mixes(), c_.hc_mult * c_.dim});
      put(fmt::format("{}.hc_{}_base", p, kind), DType::f32, {c_.hc_mixes()});
      put(fmt::format("{}.hc_{}_scale", p, kind), DType::f32, {3});
      norm(fmt::format("{}.{}_norm", p, kind), c_.dim);
    }
    attention(p + ".attn", layer);
    put(p + ".ffn.gate.bias", DType::f32, {expert_count});
    if (c_.has_vision()) put(p + ".ffn.gate.bias_vl", DType::f32, {expert_count});
    bf16_matrix(p + ".ffn.gate", expert_count, c_.dim);
    experts(p + ".ffn", expert_count);
  }

  void draft_stage(int64_t stage) {
    const std::string p = fmt::format("mtp.{}", stage);
    if (stage == 0) {
      fp8_matrix(p + ".main_proj", c_.dim,
                 c_.dim * static_cast<int64_t>(c_.dspark_target_layer_ids.size()));
      norm(p + ".main_norm", c_.dim);
    }
    block(p, c_.dspark_n_routed_experts, c_.n_layers + stage);
    if (stage == c_.n_mtp_layers - 1) {
      norm(p + ".norm", c_.dim);
      bf16_matrix(p + ".markov_head.embed", c_.vocab_size, c_.dspark_markov_rank);
      bf16_matrix(p + ".markov_head.head", c_.vocab_size, c_.dspark_markov_rank);
      bf16_matrix(p + ".confidence_head.proj", 1, c_.dim + c_.dspark_markov_rank);
    }
  }

  void engram(const std::string& p, int64_t rows) {
    const int64_t columns = (c_.engram_max_ngram_size - 1) * c_.engram_n_heads * c_.engram_head_dim;
    for (const char* name : {".q_weight", ".k_weight"}) {
      put(p + name, DType::bf16, {c_.hc_mult, c_.dim});
    }
    fp8_matrix(p + ".wkv", (c_.hc_mult + 1) * c_.dim, columns);
    // One scale per row and 32 columns, unlike a matrix's square tiles.
    put(p + ".embed.scale", DType::f8_e8m0, {rows, c_.engram_head_dim / kScaleBlock});
    put(p + ".embed.weight", DType::f8_e4m3, {rows, c_.engram_head_dim});
  }

  void vision() {
    const int64_t width = c_.vision_dim;
    const int64_t patch = 3 * c_.vision_patch_size * c_.vision_patch_size;
    const int64_t merged = width * c_.vision_downsample_ratio * c_.vision_downsample_ratio;
    bf16_matrix("vision.patch_embed.proj", width, patch, true);
    for (int64_t layer = 0; layer < c_.vision_n_layers; ++layer) {
      const std::string p = fmt::format("vision.blocks.{}", layer);
      norm(p + ".norm1", width);
      bf16_matrix(p + ".attn.wqkv", 3 * width, width, true);
      bf16_matrix(p + ".attn.wo", width, width, true);
      norm(p + ".norm2", width);
      bf16_matrix(p + ".mlp.w1", 2 * c_.vision_inter_dim, width);
      bf16_matrix(p + ".mlp.w2", width, c_.vision_inter_dim);
    }
    norm("vision.norm", width);
    bf16_matrix("aligner.w1", c_.dim, merged, true);
    bf16_matrix("aligner.w2", c_.dim, c_.dim, true);
  }

  const ModelConfig& c_;
  std::vector<TensorSpec> table_;
  int64_t shard_ = 0;
};

}  // namespace

std::vector<TensorSpec> tensor_table(const ModelConfig& config) {
  return TableBuilder(config).build();
}

std::string scale_name_of(std::string_view weight_name) {
  constexpr std::string_view kWeight = ".weight";
  CACHALOT_CHECK(weight_name.ends_with(kWeight), "{}", weight_name);
  return fmt::format("{}.scale", weight_name.substr(0, weight_name.size() - kWeight.size()));
}

}  // namespace cachalot
