#include "bench/row.h"

namespace cachalot::bench {

bool is_matrix_product(std::string_view operation) {
  return operation == "linear" || operation == "grouped_linear" || operation == "head" ||
         operation == "moe_experts";
}

void Floor::add(std::string_view operation, const Cost& cost) {
  const bool product = is_matrix_product(operation);
  const double peak = machine_.peak(product ? machine_.matmul_path : Machine::kVectorPath);
  memory_ += static_cast<double>(cost.bytes()) / machine_.read_bytes_per_second;
  if (peak > 0) (product ? products_ : others_) += static_cast<double>(cost.flops) / peak;
}

std::string Floor::limit() const {
  if (memory_ >= products_ + others_) return "memory";
  return products_ >= others_ ? machine_.matmul_path : Machine::kVectorPath;
}

}  // namespace cachalot::bench
