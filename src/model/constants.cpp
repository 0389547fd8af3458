#include "model/constants.h"

#include "checkpoint/engram_layout.h"
#include "model/rotary.h"

namespace cachalot {

ModelConstants ModelConstants::make(const ModelConfig& config, std::vector<int32_t> token_classes) {
  ModelConstants out;
  out.window_frequencies_.values =
      rope_frequencies(config.rope_head_dim, config.rope_theta, 0, config.rope_factor,
                       config.beta_fast, config.beta_slow);
  out.compressed_frequencies_.values =
      rope_frequencies(config.rope_head_dim, config.compress_rope_theta, config.original_seq_len,
                       config.rope_factor, config.beta_fast, config.beta_slow);
  out.token_classes_.values = std::move(token_classes);
  out.engram_layers_ = static_cast<int64_t>(config.engram_layer_ids.size());
  if (out.engram_layers_ == 0) return out;
  out.pad_class = out.token_classes_.values[static_cast<size_t>(config.engram_pad_id)];
  const EngramLayout layout = engram_layout(config);
  for (size_t layer = 0; layer < layout.primes.size(); ++layer) {
    for (const auto& heads : layout.primes[layer]) {
      out.primes_.values.insert(out.primes_.values.end(), heads.begin(), heads.end());
    }
    out.offsets_.values.insert(out.offsets_.values.end(), layout.offsets[layer].begin(),
                               layout.offsets[layer].end());
    out.multipliers_.values.insert(out.multipliers_.values.end(), layout.multipliers[layer].begin(),
                                   layout.multipliers[layer].end());
  }
  return out;
}

template <class T>
void ModelConstants::Table<T>::place_in(const MemorySpace& memory) {
  const size_t bytes = values.size() * sizeof(T);
  placed_ = {memory.allocate(bytes), ReleaseTo{&memory}};
  CACHALOT_CHECK(placed_ != nullptr, "{} bytes", bytes);
  memory.copy(placed_.get(), values.data(), bytes);
}

void ModelConstants::place_in(const MemorySpace& memory) {
  for (auto* table : {&window_frequencies_, &compressed_frequencies_}) table->place_in(memory);
  token_classes_.place_in(memory);
  for (auto* table : {&multipliers_, &primes_, &offsets_}) table->place_in(memory);
}

View<const float> ModelConstants::frequencies(int64_t ratio) const {
  const auto& table = ratio > 0 ? compressed_frequencies_ : window_frequencies_;
  return {table.data(), {table.size()}};
}

View<const int32_t> ModelConstants::token_map() const {
  return {token_classes_.data(), {token_classes_.size()}};
}

View<const int64_t> ModelConstants::multipliers() const {
  return {multipliers_.data(), {engram_layers_, multipliers_.size() / engram_layers_}};
}

View<const int64_t> ModelConstants::primes() const {
  return {primes_.data(), {engram_layers_, primes_.size() / engram_layers_}};
}

View<const int64_t> ModelConstants::offsets() const {
  return {offsets_.data(), {engram_layers_, offsets_.size() / engram_layers_}};
}

}  // namespace cachalot
