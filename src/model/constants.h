// What the operations need besides weights, fixed once: rotary frequencies and the engram's hash
// constants (spec: model, 4.1, 9.2, 9.3), derived from the configuration, and how experts round.
#pragma once

#include <iterator>
#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "ops/expert_input.h"
#include "tensor/memory.h"
#include "tensor/view.h"

namespace cachalot {

struct ModelConstants {
  // token_classes: class of every token id; the class count has been compared with the
  // configuration.
  static ModelConstants make(const ModelConfig& config, std::vector<int32_t> token_classes);

  // The same in other memory; what it returned before lies where it lay.
  void place_in(const MemorySpace& memory);

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
  template <class T>
  class Table {
   public:
    std::vector<T> values;
    void place_in(const MemorySpace& memory);
    int64_t size() const { return std::ssize(values); }
    const T* data() const { return placed_ ? static_cast<const T*>(placed_.get()) : values.data(); }

   private:
    std::unique_ptr<void, ReleaseTo> placed_;
  };

  Table<float> window_frequencies_, compressed_frequencies_;
  Table<int32_t> token_classes_;
  Table<int64_t> multipliers_, primes_, offsets_;
  int64_t engram_layers_ = 0;
};

}  // namespace cachalot
