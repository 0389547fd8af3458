#include "bench/row.h"

namespace cachalot::bench {

bool is_matrix_product(std::string_view operation) {
  return operation == "linear" || operation == "grouped_linear" || operation == "head" ||
         operation == "moe_experts";
}

namespace {

// What an operation's multiply-adds run on. Index keys are four bits wide and scored as integers
// wherever there is a byte product.
std::string path_of(std::string_view operation, const Machine& machine) {
  if (is_matrix_product(operation)) return machine.matmul_path;
  const bool integers = operation == "index_select" && machine.peak("int8_dot") > 0;
  return integers ? "int8_dot" : Machine::kVectorPath;
}

}  // namespace

void Floor::add(std::string_view operation, const Cost& cost) {
  memory_ += static_cast<double>(cost.bytes()) / machine_.read_bytes_per_second;
  const std::string path = path_of(operation, machine_);
  const double peak = machine_.peak(path);
  if (peak > 0) arithmetic_[path] += static_cast<double>(cost.flops) / peak;
}

double Floor::arithmetic_seconds() const {
  double seconds = 0;
  for (const auto& [path, part] : arithmetic_) seconds += part;
  return seconds;
}

std::string Floor::limit() const {
  if (memory_ >= arithmetic_seconds()) return "memory";
  const auto longest =
      std::ranges::max_element(arithmetic_, {}, [](const auto& part) { return part.second; });
  return longest->first;
}

}  // namespace cachalot::bench
