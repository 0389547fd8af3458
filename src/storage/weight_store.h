// WeightStore: the weights that are read from disk when they are used, instead of through a
// mapping.
//
// Model code keeps the mapped addresses; a queue that has a store never touches them for experts
// and tables the store knows, so that a disk that fails ends a step with an error and not the
// process with a signal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/expert_cache.h"
#include "storage/row_store.h"

namespace cachalot {

struct WeightStoreOptions {
  std::optional<int64_t> expert_bytes;  // budget of the experts; absent: they are used as mapped
  std::optional<int64_t> row_bytes;     // budget of hot table rows; absent: used as mapped
  ReaderKind reader = ReaderKind::best;
  int depth = kDefaultReadDepth;
  bool direct = true;  // past the page cache, where the filesystem allows it
  // Tests put a reader of their own around the real one.
  std::function<std::unique_ptr<FileReader>(std::unique_ptr<FileReader>)> wrap_reader = {};
};

// What lies where: views into the mapped files.
struct StoredWeights {
  std::vector<MappedPart> files;
  std::vector<std::vector<MappedExpert>> layers;  // experts by layer, in the order layers run
  std::vector<MappedTable> tables;
};

struct WeightStoreStatistics {
  std::string reader;  // "io_uring", "threads"
  bool direct = false;
  std::optional<ExpertCacheStatistics> experts;
  std::optional<RowStoreStatistics> rows;
};

class WeightStore {
 public:
  // Errors: a file that changed, a budget too small or too large, no reader of the wanted kind.
  static Result<std::unique_ptr<WeightStore>> open(const StoredWeights& weights,
                                                   const WeightStoreOptions& options);

  ExpertCache* experts() { return experts_.get(); }  // nullptr: used as mapped
  const ExpertCache* experts() const { return experts_.get(); }
  RowStore* rows() { return rows_.get(); }

  // The first failure since the last take_failure(): operations report it here, leave zeros as
  // their result and do not read any more.
  void fail_with(Error error);
  bool failed() const { return failure_.has_value(); }
  Status take_failure();

  WeightStoreStatistics statistics() const;

 private:
  WeightStore() = default;

  std::vector<DirectFile> files_;
  std::unique_ptr<FileReader> reader_;
  std::unique_ptr<ExpertCache> experts_;
  std::unique_ptr<RowStore> rows_;
  std::optional<Error> failure_;
};

}  // namespace cachalot
