// Random operands of every format, and the caches and rows of a step; owns what it hands out.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "tensor/cache_rows.h"
#include "tensor/matrix.h"

namespace cachalot {

// The part of one sequence that a step computes: positions first .. first + count - 1.
struct SequencePart {
  int32_t slot = 0;
  int32_t first = 0;
  int32_t count = 1;
};

class RandomTensors {
 public:
  explicit RandomTensors(uint32_t seed) : engine_(seed) {}

  // Zeros.
  template <class T>
  View<T> tensor(Shape shape) {
    auto values = std::make_shared<std::vector<T>>(static_cast<size_t>(shape.elements()));
    kept_.push_back(values);
    return {values->data(), shape};
  }
  template <class T>
  View<T> tensor(Shape shape, const std::vector<T>& values) {
    const View<T> out = tensor<T>(shape);
    std::copy(values.begin(), values.end(), out.data);
    return out;
  }

  // Normally distributed.
  View<bf16> bf16s(Shape shape, float deviation = 1, float mean = 0);
  View<float> floats(Shape shape, float deviation = 1, float mean = 0);
  // Uniform in low .. high, both included.
  template <class T = int32_t>
  View<T> integers(Shape shape, T low, T high) {
    const View<T> out = tensor<T>(shape);
    std::uniform_int_distribution<T> draw(low, high);
    for (int64_t i = 0; i < out.elements(); ++i) out.data[i] = draw(engine_);
    return out;
  }

  // Every code but NaN, scales 2^-9 .. 2^-6.
  DenseMatrix fp8_matrix(int64_t rows, int64_t columns);
  DenseMatrix bf16_matrix(int64_t rows, int64_t columns);
  // Every code, scales 2^-6 .. 2^-4.
  Fp4Matrix fp4_matrix(int64_t rows, int64_t columns);
  View<uint8_t> e4m3_codes(Shape shape);

  // pairs frequencies from 1 down.
  View<const float> frequencies(int64_t pairs);
  StepRows step(const std::vector<SequencePart>& parts);
  // Rows of quantized random values; every slot's pages mapped, in shuffled order.
  PagedRows<uint8_t> latents(int64_t slots, int64_t pages, int64_t rows_per_page, int64_t head_dim);
  PagedRows<uint8_t> index_keys(int64_t slots, int64_t pages, int64_t rows_per_page, int64_t width);
  View<uint8_t> window_rows(Shape shape, int64_t head_dim);
  // page numbers [slots, pages_per_slot], each once
  View<const int32_t> page_table(int64_t slots, int64_t pages_per_slot);

  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace cachalot
