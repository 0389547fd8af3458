#include "checkpoint/config.h"

#include <algorithm>

namespace cachalot {
namespace {

bool holds(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The largest of `sources` (ascending) that is not above `layer`.
int64_t last_not_above(const std::vector<int64_t>& sources, int64_t layer) {
  const auto above = std::upper_bound(sources.begin(), sources.end(), layer);
  return above == sources.begin() ? -1 : *(above - 1);
}

}  // namespace

bool ModelConfig::is_kv_source(int64_t layer) const { return holds(kv_source_layers, layer); }

bool ModelConfig::is_index_source(int64_t layer) const { return holds(index_source_layers, layer); }

int64_t ModelConfig::kv_source_of(int64_t layer) const {
  return ratio(layer) == 0 ? -1 : last_not_above(kv_source_layers, layer);
}

int64_t ModelConfig::index_source_of(int64_t layer) const {
  return ratio(layer) == 0 ? -1 : last_not_above(index_source_layers, layer);
}

int64_t ModelConfig::engram_index(int64_t layer) const {
  const auto found = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return found == engram_layer_ids.end() ? -1 : found - engram_layer_ids.begin();
}

}  // namespace cachalot
