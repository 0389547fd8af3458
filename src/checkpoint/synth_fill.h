// Random contents for one tensor, drawn so that activations stay in a healthy range and every
// branch (experts, gates, sinks, biases, mixing coefficients) matters to the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {

// Bytes of a tensor as a pure function of seed, tensor and place, so that threads can write any
// part of it. Standard deviations are those of the random checkpoints the model is tested with: a
// matrix has gain / sqrt(columns), norms lie around 1.
class TensorFill {
 public:
  // `number`: the tensor's place in the table, part of its seed.
  TensorFill(const ModelConfig& config, const TensorSpec& spec, uint64_t seed, int64_t number);

  // Bytes [begin, begin + out.size()) of the tensor; begin is a multiple of 8.
  void write(int64_t begin, std::span<std::byte> out) const;

 private:
  enum class Kind { whole_bytes, e4m3, byte_table, bf16_table, f32_table, given };

  void use_scales(double spread, double code_rms);
  void use_floats(DType dtype, double mean, double spread);

  Kind kind_ = Kind::whole_bytes;
  uint64_t key_ = 0;
  std::vector<uint8_t> byte_table_;    // [256]
  std::vector<uint16_t> bf16_table_;   // [4096] quantiles of the distribution
  std::vector<uint32_t> f32_table_;    // [4096] the same as bits of floats
  std::vector<uint64_t> given_words_;  // small tensors with a structure
};

}  // namespace cachalot
