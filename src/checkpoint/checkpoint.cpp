#include "checkpoint/checkpoint.h"

#include "base/check.h"
#include "checkpoint/tensor_table.h"
#include "tensor/planned_memory.h"

namespace cachalot {

Checkpoint Checkpoint::planned(const ModelConfig& config) {
  Checkpoint result;
  result.planned_ = true;
  result.config_ = config;
  size_t at = 0;
  for (const TensorSpec& spec : tensor_table(config)) {
    constexpr size_t kAlignment = 64;
    const auto bytes = static_cast<size_t>(spec.bytes());
    const auto* data = planned_address<const std::byte>(PlannedMemory::weights, at);
    result.tensors_.push_back({spec.name, spec.dtype, spec.shape, {data, bytes}, ""});
    result.total_bytes_ += spec.bytes();
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    result.by_name_.emplace(result.tensors_[i].name, i);
  }
  return result;
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorEntry& Checkpoint::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  CACHALOT_CHECK(entry != nullptr, "no tensor {}", name);
  return *entry;
}

}  // namespace cachalot
