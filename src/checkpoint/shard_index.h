// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace cachalot {

struct ShardIndex {
  std::optional<int64_t> total_size;                           // bytes of all tensors
  std::vector<std::pair<std::string, std::string>> locations;  // tensor, file; names are unique
};

// Errors: not JSON, weight_map absent or not text to text, a name given twice, a file name that
// leads out of the folder, total_size not an integer.
Result<ShardIndex> parse_shard_index(std::string_view text);

}  // namespace cachalot
