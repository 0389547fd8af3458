// What the operations need besides weights, fixed once: rotary frequencies and the engram's hash
// constants (spec: model, 4.1, 9.2, 9.3), derived from the configuration, and how experts round.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "ops/expert_input.h"
#include "tensor/view.h"

namespace cachalot {

struct ModelConstants {
  // token_classes: class of every token id; the class count has been compared with the
  // configuration.
  static ModelConstants make(const ModelConfig& config, std::vector<int32_t> token_classes);

  // Frequencies of a layer's rotations: every layer with compressed rows turns all of them, its
  // window too, by the compress theta with YaRN.
  View<const float> frequencies(int64_t ratio) const;
  View<const int32_t> token_map() const;
  View<const int64_t> multipliers() const;  // [engram layers, largest n-gram]
  View<const int64_t> primes() const;       // [engram layers, columns]
  View<const int64_t> offsets() const;      // [engram layers, columns]
  int32_t pad_class = 0;
  ExpertInput expert_input = ExpertInput::fp8;

 private:
  std::vector<float> window_frequencies_, compressed_frequencies_;
  std::vector<int32_t> token_classes_;
  std::vector<int64_t> multipliers_, primes_, offsets_;
  int64_t engram_layers_ = 0;
};

}  // namespace cachalot
