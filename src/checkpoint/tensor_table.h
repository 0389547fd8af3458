// Every tensor a checkpoint of a given configuration holds (spec: checkpoint, 2 and 3).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace cachalot {

struct TensorSpec {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t shard = 0;  // which of the release's files, from 0, ascending through the table

  int64_t bytes() const { return shape.elements() * size_of(dtype); }
  // Values the tensor stands for: two per byte of packed FP4, none for a scale.
  int64_t parameters() const {
    if (dtype == DType::f8_e8m0) return 0;
    return shape.elements() * (dtype == DType::i8 ? 2 : 1);
  }
};

// In the order of the release's files: vision and aligner; embed and image marks; one file per
// layer; head and norm; one per draft stage; one per engram table with its projection. Inside a
// layer all experts' scales come before all experts' weights. A loader must not rely on the order.
// The configuration must be valid.
std::vector<TensorSpec> tensor_table(const ModelConfig& config);

// The scale of a quantized matrix: "X.weight" -> "X.scale".
std::string scale_name_of(std::string_view weight_name);

}  // namespace cachalot
