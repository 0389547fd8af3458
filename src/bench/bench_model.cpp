#include "bench/bench_model.h"

#include <numeric>

#include "base/memory_placement.h"
#include "bench/made_weights.h"
#include "checkpoint/synth.h"

namespace cachalot::bench {
namespace {

const void* address_of(const DenseMatrix& matrix) {
  return matrix.quantized() ? static_cast<const void*>(matrix.codes.data) : matrix.values.data;
}

using Names = std::unordered_map<const void*, std::string>;

void name_layer(const LayerWeights& layer, Names& names) {
  const AttentionWeights& a = layer.attention;
  names[address_of(a.wq_a)] = "wq_a";
  names[address_of(a.wq_b)] = "wq_b";
  names[address_of(a.wkv)] = "wkv";
  names[address_of(a.wo_a)] = "wo_a";
  names[address_of(a.wo_b)] = "wo_b";
  if (a.compressor) {
    names[address_of(a.compressor->wkv)] = "compressor_wkv";
    names[address_of(a.compressor->wgate)] = "compressor_wgate";
  }
  if (a.indexer) {
    names[address_of(a.indexer->wq_b)] = "indexer_wq_b";
    names[address_of(a.indexer->weights_proj)] = "indexer_weights";
  }
  if (layer.engram) names[address_of(layer.engram->wkv)] = "engram_wkv";
}

Names names_of(const ModelWeights& weights) {
  Names names;
  for (const LayerWeights& layer : weights.layers) name_layer(layer, names);
  if (weights.draft) names[address_of(weights.draft->main_proj)] = "main_proj";
  names.erase(nullptr);
  return names;
}

// The configuration of the first layers alone, and the weights to it.
Status keep_layers(int64_t layers, ModelConfig& config, ModelWeights& weights) {
  if (layers < 1 || layers > config.n_layers) {
    return fail("--layers: this model has 1 to {}, found {}", config.n_layers, layers);
  }
  const int64_t whole = config.n_layers;
  // The same bucket size: the tables stay as they are.
  CACHALOT_TRY(config, reduced_config(config, {.layers = layers,
                                               .experts = {},
                                               .engram_rows = config.engram_layer_ids.empty()
                                                                  ? std::optional<int64_t>()
                                                                  : config.engram_vocab_size}));
  weights.layers.erase(weights.layers.begin() + layers, weights.layers.begin() + whole);
  if (config.has_drafts()) return {};
  weights.layers.resize(static_cast<size_t>(layers));
  weights.draft.reset();
  return {};
}

bool is_engram_table(const TensorEntry& tensor) {
  return tensor.name.find(".engram.embed.") != tensor.name.npos;
}

// The tensors of layers that are left out stay on disk.
bool is_used(const TensorEntry& tensor, const ModelConfig& config) {
  constexpr std::string_view kLayers = "layers.";
  if (!tensor.name.starts_with(kLayers)) return true;
  return std::stoll(tensor.name.substr(kLayers.size())) < config.n_layers;
}

}  // namespace

std::vector<int32_t> made_up_classes(const ModelConfig& config) {
  std::vector<int32_t> classes(static_cast<size_t>(config.vocab_size));
  for (size_t id = 0; id < classes.size(); ++id) {
    classes[id] = static_cast<int32_t>(static_cast<int64_t>(id) %
                                       std::max<int64_t>(1, config.engram_compressed_vocab_size));
  }
  return classes;
}

Result<BenchModel> BenchModel::open(const std::filesystem::path& folder,
                                    std::optional<int64_t> layers) {
  CACHALOT_TRY(auto opened, Checkpoint::open(folder));
  BenchModel model;
  model.checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  model.config = model.checkpoint->config();
  CACHALOT_TRY(model.weights, ModelWeights::bind(*model.checkpoint));
  if (layers) CACHALOT_OK(keep_layers(*layers, model.config, model.weights));
  model.constants = ModelConstants::make(model.config, made_up_classes(model.config));
  model.names = names_of(model.weights);
  return model;
}

Result<BenchModel> BenchModel::planned(const std::filesystem::path& configuration,
                                       std::optional<int64_t> layers,
                                       std::optional<int64_t> experts) {
  CACHALOT_TRY(const ModelConfig whole, config_at(configuration));
  if (layers && (*layers < 1 || *layers > whole.n_layers)) {
    return fail("--layers: this model has 1 to {}, found {}", whole.n_layers, *layers);
  }
  BenchModel model;
  CACHALOT_TRY(model.config, reduced_config(whole, {.layers = layers, .experts = experts}));
  model.checkpoint = std::make_shared<const Checkpoint>(Checkpoint::planned(model.config));
  CACHALOT_TRY(model.weights, ModelWeights::bind(*model.checkpoint));
  model.constants = ModelConstants::make(model.config, made_up_classes(model.config));
  model.names = names_of(model.weights);
  if (model.config.n_layers < whole.n_layers) {
    model.notes.push_back(
        fmt::format("the first {} of {} layers", model.config.n_layers, whole.n_layers));
  }
  if (model.config.engram_vocab_size < whole.engram_vocab_size) {
    model.notes.push_back(fmt::format("engram tables of {} rows a bucket instead of {}",
                                      model.config.engram_vocab_size, whole.engram_vocab_size));
  }
  return model;
}

Result<BenchModel> BenchModel::made(const std::filesystem::path& configuration,
                                    std::optional<int64_t> layers, std::optional<int64_t> experts,
                                    const MemorySpace& memory) {
  CACHALOT_TRY(BenchModel model, planned(configuration, layers, experts));
  CACHALOT_TRY(model.weights, make_weights(*model.checkpoint, memory));
  model.constants.place_in(memory);
  model.names = names_of(model.weights);
  return model;
}

std::vector<std::span<const std::byte>> BenchModel::warm() {
  constexpr int64_t kSmallTable = int64_t{1} << 30;
  int64_t wanted = 0;
  std::vector<std::span<const std::byte>> used;
  for (const TensorEntry& tensor : checkpoint->tensors()) {
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    if (!is_used(tensor, config) || (is_engram_table(tensor) && bytes > kSmallTable)) continue;
    wanted += bytes;
    used.push_back(tensor.bytes);
  }
  const int64_t available = available_memory();
  if (available > 0 && wanted > available) {
    notes.push_back(fmt::format(
        "the weights, {:.1f} GB, do not fit into the {:.1f} GB of memory: steps read from the disk",
        static_cast<double>(wanted) / 1e9, static_cast<double>(available) / 1e9));
    return {};
  }
  volatile uint8_t sink = 0;
  for (const auto bytes : used) {
    uint8_t sum = 0;
    for (size_t at = 0; at < bytes.size(); at += 4096) sum ^= static_cast<uint8_t>(bytes[at]);
    sink = sink ^ sum;
  }
  return used;
}

std::string BenchModel::name_of(std::string_view operation, std::string_view variant,
                                const void* weight) const {
  std::string name(operation == "moe_experts" ? "experts" : operation);
  const auto found = names.find(weight);
  if (found != names.end()) return name + "." + found->second;
  return variant.empty() ? name : name + "." + std::string(variant);
}

std::string BenchModel::kind_of(int64_t layer) const {
  std::string kind = "reuse";
  if (layer >= config.n_layers) {
    kind = "stage";
  } else if (config.ratio(layer) == 0) {
    kind = "window";
  } else if (config.is_kv_source(layer)) {
    kind = "source";
  } else if (config.is_index_source(layer)) {
    kind = "index";
  }
  return config.engram_index(layer) >= 0 ? kind + "_engram" : kind;
}

}  // namespace cachalot::bench
