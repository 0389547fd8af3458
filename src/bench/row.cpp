#include "bench/row.h"

namespace cachalot::bench {

bool is_matrix_product(std::string_view operation) {
  return operation == "linear" || operation == "grouped_linear" || operation == "head" ||
         operation == "moe_experts";
}

namespace {

// On a GPU what is stored in eight or four bits can be multiplied by the FP8 tensor cores, anything
// in BF16 or expanded to it exactly by theirs; the rest runs on CUDA cores.
std::string gpu_path_of(std::string_view operation) {
  for (std::string_view each : {"linear", "moe_experts", "index_select"}) {
    if (operation == each) return "fp8_wgmma";
  }
  for (std::string_view each :
       {"grouped_linear", "head", "route", "sparse_attention", "markov_step", "image_attention"}) {
    if (operation == each) return "bf16_wgmma";
  }
  return Machine::kVectorPath;
}

// What an operation's multiply-adds run on. Index keys are four bits wide and scored as integers
// wherever there is a byte product.
std::string path_of(std::string_view operation, const Machine& machine) {
  if (machine.multiprocessors > 0) return gpu_path_of(operation);
  if (is_matrix_product(operation)) return machine.matmul_path;
  // Where there are matrix registers attention has its products there, too.
  if (operation == "sparse_attention" && machine.matmul_path == "amx_bf16") {
    return machine.matmul_path;
  }
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
