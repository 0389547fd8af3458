// RowStore: rows of tables that stay on disk. All rows of a step are asked for at once, each
// once however often it occurs, and are on their way while the layers below compute.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "storage/file_map.h"
#include "storage/file_reader.h"
#include "storage/row_cache.h"

namespace cachalot {

// A table as it is mapped: [rows, width] codes and [rows, scale_width] scales, one byte each.
struct MappedTable {
  std::span<const std::byte> codes, scales;
  int64_t rows = 0;
};

struct RowStoreStatistics {
  int64_t capacity = 0;  // rows the cache can hold
  int64_t cache_bytes = 0;
  int64_t hits = 0;  // distinct rows of a step and table found in the cache
  int64_t misses = 0;
  int64_t bytes_read = 0;  // asked for; the disk reads whole blocks
  double wait_seconds = 0;
};

struct RowBytes {
  const std::byte* codes;
  const std::byte* scales;
};

// One caller at a time; the reader's threads answer.
class RowStore final : public ReadListener {
 public:
  // Tables of one width, in layer order. `reader` outlives the store.
  RowStore(FileReader& reader, const FileMap& files, std::span<const MappedTable> tables,
           int64_t cache_bytes);
  // Waits for the reads in flight.
  ~RowStore() override;

  // Asks for a step's rows, [tokens, tables, columns] numbers. Reads are on their way when it
  // returns.
  void request(std::span<const int64_t> rows, int64_t tokens);
  // Waits for the rows of a table; asks for all of them first if the last request was for others.
  // Errors: a read failed.
  Status wait(size_t table, std::span<const int64_t> rows, int64_t tokens);
  // After wait(table) succeeded, until the next request. `place`: index among the step's rows.
  RowBytes row(size_t table, size_t place) const {
    const Batch& batch = batches_[table];
    const std::byte* record =
        batch.records.data() + static_cast<size_t>(batch.record_of[place]) * record_bytes_;
    return {record, record + width_};
  }

  RowStoreStatistics statistics() const;

  void read_done(const FileRead& read, const Status& status) override;

 private:
  struct Table {
    FileSpan codes;
    std::optional<FileSpan> scales;
    const std::byte* scales_in_memory = nullptr;
    int64_t rows = 0;
  };
  // The distinct rows of a step and table.
  struct Batch {
    std::vector<int64_t> rows;       // by record
    std::vector<int32_t> missing;    // records to be read
    std::vector<int32_t> record_of;  // by place among the step's rows of this table
    std::vector<std::byte> records;  // codes, then scales
    int64_t reads = 0;               // in flight; guarded by mutex_, as is the error
    std::optional<Error> error;
  };

  void distinct(Batch& batch, size_t table, std::span<const int64_t> rows, int64_t tokens);
  void start_reads(size_t table);
  bool holds(size_t table, std::span<const int64_t> rows, int64_t tokens) const;
  static uint64_t key(size_t table, int64_t row) {
    return static_cast<uint64_t>(table) << 48 | static_cast<uint64_t>(row);
  }

  FileReader& reader_;
  std::vector<Table> tables_;
  size_t width_ = 0, scale_width_ = 0, record_bytes_ = 0;
  RowCache cache_;
  std::vector<Batch> batches_;  // by table
  std::vector<int32_t> seen_;   // open hash table of records, -1: free
  std::vector<FileRead> reads_;
  RowStoreStatistics statistics_;

  std::mutex mutex_;
  std::condition_variable arrived_;
};

}  // namespace cachalot
