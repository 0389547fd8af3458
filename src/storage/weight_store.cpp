#include "storage/weight_store.h"

#include <algorithm>
#include <utility>

namespace cachalot {

Result<std::unique_ptr<WeightStore>> WeightStore::open(const StoredWeights& weights,
                                                       const WeightStoreOptions& options) {
  std::unique_ptr<WeightStore> store(new WeightStore);
  const FileMap map(weights.files);
  CACHALOT_TRY(store->files_, map.open(options.direct));
  CACHALOT_TRY(store->reader_, make_file_reader(options.reader, store->files_, options.depth));
  if (options.wrap_reader) store->reader_ = options.wrap_reader(std::move(store->reader_));
  if (options.expert_bytes) {
    CACHALOT_TRY(store->experts_,
                 ExpertCache::make(*store->reader_, map, weights.layers, *options.expert_bytes));
  }
  if (options.row_bytes && !weights.tables.empty()) {
    store->rows_ =
        std::make_unique<RowStore>(*store->reader_, map, weights.tables, *options.row_bytes);
  }
  return store;
}

void WeightStore::fail_with(Error error) {
  if (!failure_) failure_ = std::move(error);
}

Status WeightStore::take_failure() {
  if (!failure_) return {};
  return fail(*std::exchange(failure_, std::nullopt));
}

WeightStoreStatistics WeightStore::statistics() const {
  WeightStoreStatistics statistics;
  statistics.reader = reader_->name();
  statistics.direct =
      std::ranges::all_of(files_, [](const DirectFile& file) { return file.alignment() > 1; });
  if (experts_) statistics.experts = experts_->statistics();
  if (rows_) statistics.rows = rows_->statistics();
  return statistics;
}

}  // namespace cachalot
