#include "checkpoint/checkpoint.h"

#include "base/check.h"

namespace cachalot {

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
