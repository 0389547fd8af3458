#include "model/weights.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"

namespace cachalot {
namespace {

// Looks tensors up by name and turns scales into the form the kernels take.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, std::vector<std::unique_ptr<void, ReleaseTo>>& owned)
      : checkpoint_(checkpoint), owned_(owned) {}

  template <class T>
  View<const T> tensor(const std::string& name) const {
    return checkpoint_.at(name).view<T>();
  }
  template <class T>
  View<const T> tensor_if_any(const std::string& name) const {
    const TensorEntry* entry = checkpoint_.find(name);
    return entry ? entry->view<T>() : View<const T>();
  }

  // NAME.weight, and NAME.scale when it is FP8.
  DenseMatrix dense(const std::string& name) {
    const TensorEntry& weight = checkpoint_.at(name + ".weight");
    DenseMatrix matrix{.rows = weight.shape[0], .columns = weight.shape[1]};
    if (weight.dtype == DType::bf16) {
      matrix.values = weight.view<bf16>();
    } else {
      matrix.codes = weight.view<uint8_t>();
      matrix.scales = scales_as_floats(checkpoint_.at(name + ".scale"));
    }
    return matrix;
  }

  Result<Fp4Matrix> fp4(const std::string& name) {
    const TensorEntry& weight = checkpoint_.at(name + ".weight");
    Fp4Matrix matrix{.rows = weight.shape[0], .columns = weight.shape[1] * 2};
    matrix.codes = weight.view<uint8_t>();
    CACHALOT_TRY(matrix.scales, scales_as_codes(checkpoint_.at(name + ".scale")));
    return matrix;
  }

  Result<View<const uint8_t>> scales_as_codes(const TensorEntry& scale) {
    if (scale.dtype != DType::f32) return scale.view<uint8_t>();
    const View<const float> values = scale.view<float>();
    const View<uint8_t> codes = own<uint8_t>(scale.shape);
    for (int64_t i = 0; i < values.elements(); ++i) {
      const uint8_t code = pow2_ceil_code(values.data[i]);
      if (!(values.data[i] > 0) || e8m0_to_float(code) != values.data[i]) {
        return fail("{}: {}: expected powers of two as scales of FP4 codes, found {} at element {}",
                    scale.file, scale.name, values.data[i], i);
      }
      codes.data[i] = code;
    }
    return View<const uint8_t>(codes);
  }

 private:
  template <class T>
  View<T> own(Shape shape) {
    const auto bytes = static_cast<size_t>(shape.elements()) * sizeof(T);
    owned_.emplace_back(host_memory().allocate(bytes), ReleaseTo{&host_memory()});
    CACHALOT_CHECK(owned_.back() != nullptr, "{} bytes", bytes);
    return {static_cast<T*>(owned_.back().get()), shape};
  }

  View<const float> scales_as_floats(const TensorEntry& scale) {
    if (scale.dtype == DType::f32) return scale.view<float>();
    const View<const uint8_t> codes = scale.view<uint8_t>();
    // Nothing to read, and the address is what a survey knows the tensor by.
    if (checkpoint_.is_planned()) {
      return {reinterpret_cast<const float*>(codes.data), codes.shape};
    }
    const View<float> values = own<float>(scale.shape);
    for (int64_t i = 0; i < codes.elements(); ++i) values.data[i] = e8m0_to_float(codes.data[i]);
    return values;
  }

  const Checkpoint& checkpoint_;
  std::vector<std::unique_ptr<void, ReleaseTo>>& owned_;
};

HyperConnectionWeights bind_mix(Binder& bind, const std::string& name) {
  return {.fn = bind.tensor<float>(name + "_fn"),
          .base = bind.tensor<float>(name + "_base"),
          .scale = bind.tensor<float>(name + "_scale")};
}

CompressorWeights bind_compressor(Binder& bind, const std::string& attention, int64_t ratio) {
  CompressorWeights weights{.wkv = bind.dense(attention + ".compressor.wkv"),
                            .wgate = {},
                            .norm = bind.tensor<bf16>(attention + ".compressor.norm.weight"),
                            .key_weight = bind.tensor<bf16>(attention + ".indexer.wk.weight"),
                            .key_norm = bind.tensor<bf16>(attention + ".indexer.k_norm.weight")};
  if (ratio > 1) weights.wgate = bind.dense(attention + ".compressor.wgate");
  return weights;
}

AttentionWeights bind_attention(Binder& bind, const ModelConfig& config, int64_t layer,
                                const std::string& name) {
  AttentionWeights weights{.wq_a = bind.dense(name + ".wq_a"),
                           .wq_b = bind.dense(name + ".wq_b"),
                           .wkv = bind.dense(name + ".wkv"),
                           .wo_a = bind.dense(name + ".wo_a"),
                           .wo_b = bind.dense(name + ".wo_b"),
                           .q_norm = bind.tensor<bf16>(name + ".q_norm.weight"),
                           .kv_norm = bind.tensor<bf16>(name + ".kv_norm.weight"),
                           .sink = bind.tensor<float>(name + ".attn_sink"),
                           .compressor = {},
                           .indexer = {}};
  if (config.is_kv_source(layer)) {
    weights.compressor = bind_compressor(bind, name, config.ratio(layer));
  }
  if (config.is_index_source(layer)) {
    weights.indexer = IndexerWeights{.wq_b = bind.dense(name + ".indexer.wq_b"),
                                     .weights_proj = bind.dense(name + ".indexer.weights_proj")};
  }
  return weights;
}

Result<ExpertsWeights> bind_experts(Binder& bind, int64_t count, const std::string& name) {
  ExpertsWeights weights{.gate = bind.tensor<bf16>(name + ".gate.weight"),
                         .bias = bind.tensor<float>(name + ".gate.bias"),
                         .bias_image = bind.tensor_if_any<float>(name + ".gate.bias_vl"),
                         .experts = {},
                         .shared = {.w1 = bind.dense(name + ".shared_experts.w1"),
                                    .w2 = bind.dense(name + ".shared_experts.w2"),
                                    .w3 = bind.dense(name + ".shared_experts.w3")}};
  for (int64_t e = 0; e < count; ++e) {
    const std::string expert = fmt::format("{}.experts.{}", name, e);
    ExpertMatrices matrices;
    CACHALOT_TRY(matrices.w1, bind.fp4(expert + ".w1"));
    CACHALOT_TRY(matrices.w2, bind.fp4(expert + ".w2"));
    CACHALOT_TRY(matrices.w3, bind.fp4(expert + ".w3"));
    weights.experts.push_back(matrices);
  }
  return weights;
}

Result<EngramWeights> bind_engram(Binder& bind, const Checkpoint& checkpoint,
                                  const std::string& name) {
  EngramWeights weights;
  weights.codes = bind.tensor<uint8_t>(name + ".embed.weight");
  CACHALOT_TRY(weights.scales, bind.scales_as_codes(checkpoint.at(name + ".embed.scale")));
  weights.wkv = bind.dense(name + ".wkv");
  weights.q_weight = bind.tensor<bf16>(name + ".q_weight");
  weights.k_weight = bind.tensor<bf16>(name + ".k_weight");
  return weights;
}

// A backbone layer or, from n_layers on, a draft stage.
Result<LayerWeights> bind_layer(Binder& bind, const Checkpoint& checkpoint, int64_t layer) {
  const ModelConfig& config = checkpoint.config();
  const bool backbone = layer < config.n_layers;
  const std::string name =
      backbone ? fmt::format("layers.{}", layer) : fmt::format("mtp.{}", layer - config.n_layers);
  LayerWeights out;
  if (backbone && config.engram_index(layer) >= 0) {
    CACHALOT_TRY(out.engram, bind_engram(bind, checkpoint, name + ".engram"));
  }
  out.attention_mix = bind_mix(bind, name + ".hc_attn");
  out.attention_norm = bind.tensor<bf16>(name + ".attn_norm.weight");
  out.attention = bind_attention(bind, config, layer, name + ".attn");
  out.experts_mix = bind_mix(bind, name + ".hc_ffn");
  out.experts_norm = bind.tensor<bf16>(name + ".ffn_norm.weight");
  const int64_t experts = backbone ? config.n_routed_experts : config.dspark_n_routed_experts;
  CACHALOT_TRY(out.experts, bind_experts(bind, experts, name + ".ffn"));
  return out;
}

DraftWeights bind_draft(Binder& bind, const ModelConfig& config) {
  const std::string last = fmt::format("mtp.{}", config.n_mtp_layers - 1);
  return {.main_proj = bind.dense("mtp.0.main_proj"),
          .main_norm = bind.tensor<bf16>("mtp.0.main_norm.weight"),
          .norm = bind.tensor<bf16>(last + ".norm.weight"),
          .markov_embed = bind.tensor<bf16>(last + ".markov_head.embed.weight"),
          .markov_head = bind.tensor<bf16>(last + ".markov_head.head.weight"),
          .confidence = bind.tensor<bf16>(last + ".confidence_head.proj.weight")};
}

}  // namespace

Result<ModelWeights> ModelWeights::bind(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  ModelWeights weights;
  Binder bind(checkpoint, weights.owned);
  weights.embed = bind.tensor<bf16>("embed.weight");
  weights.norm = bind.tensor<bf16>("norm.weight");
  weights.head = bind.tensor<bf16>("head.weight");
  for (int64_t layer = 0; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    CACHALOT_TRY(LayerWeights bound, bind_layer(bind, checkpoint, layer));
    weights.layers.push_back(std::move(bound));
  }
  if (config.has_drafts()) weights.draft = bind_draft(bind, config);
  return weights;
}

}  // namespace cachalot
