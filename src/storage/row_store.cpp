#include "storage/row_store.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace cachalot {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t width_of(std::span<const std::byte> bytes, int64_t rows) {
  return bytes.size() / static_cast<size_t>(rows);
}

// No more room than twice what all rows take: beyond that hardly two share a place.
int64_t useful_bytes(int64_t budget, std::span<const MappedTable> tables) {
  int64_t all = 0;
  for (const MappedTable& table : tables) {
    all += std::ssize(table.codes) + std::ssize(table.scales) + 16 * table.rows;
  }
  return std::min(budget, 2 * all);
}

}  // namespace

RowStore::RowStore(FileReader& reader, const FileMap& files, std::span<const MappedTable> tables,
                   int64_t cache_bytes)
    : reader_(reader),
      width_(width_of(tables.front().codes, tables.front().rows)),
      scale_width_(width_of(tables.front().scales, tables.front().rows)),
      record_bytes_(width_ + scale_width_),
      cache_(useful_bytes(cache_bytes, tables), static_cast<int64_t>(record_bytes_)),
      batches_(tables.size()) {
  for (const MappedTable& mapped : tables) {
    CACHALOT_CHECK(width_of(mapped.codes, mapped.rows) == width_);
    const auto codes = files.find(mapped.codes);
    CACHALOT_CHECK(codes, "codes of a table outside its file");
    tables_.push_back({*codes, files.find(mapped.scales), mapped.scales.data(), mapped.rows});
  }
  statistics_.capacity = cache_.capacity();
  statistics_.cache_bytes = cache_.bytes();
}

RowStore::~RowStore() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] {
    return std::ranges::all_of(batches_, [](const Batch& batch) { return batch.reads == 0; });
  });
}

// Numbers the distinct rows in the order they occur.
void RowStore::distinct(Batch& batch, size_t table, std::span<const int64_t> rows, int64_t tokens) {
  const size_t columns = rows.size() / static_cast<size_t>(tokens) / tables_.size();
  const size_t places = static_cast<size_t>(tokens) * columns;
  const size_t mask = std::bit_ceil(2 * places) - 1;
  seen_.assign(mask + 1, -1);
  batch.rows.clear();
  batch.record_of.resize(places);
  for (size_t place = 0; place < places; ++place) {
    const int64_t row =
        rows[(place / columns * tables_.size() + table) * columns + place % columns];
    CACHALOT_CHECK(row >= 0 && row < tables_[table].rows, "row {} of {}", row, tables_[table].rows);
    size_t at = (static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u) >> 20 & mask;
    while (seen_[at] >= 0 && batch.rows[static_cast<size_t>(seen_[at])] != row) {
      at = (at + 1) & mask;
    }
    if (seen_[at] < 0) {
      seen_[at] = static_cast<int32_t>(batch.rows.size());
      batch.rows.push_back(row);
    }
    batch.record_of[place] = seen_[at];
  }
}

void RowStore::start_reads(size_t table) {
  Batch& batch = batches_[table];
  const Table& source = tables_[table];
  batch.records.resize(batch.rows.size() * record_bytes_);
  batch.missing.clear();
  reads_.clear();
  for (size_t record = 0; record < batch.rows.size(); ++record) {
    std::byte* target = batch.records.data() + record * record_bytes_;
    const int64_t row = batch.rows[record];
    if (const std::byte* cached = cache_.find(key(table, row))) {
      std::memcpy(target, cached, record_bytes_);
      continue;
    }
    batch.missing.push_back(static_cast<int32_t>(record));
    const auto add = [&](const FileSpan& span, size_t width, std::byte* to) {
      reads_.push_back({.file = span.file,
                        .offset = span.offset + row * static_cast<int64_t>(width),
                        .bytes = static_cast<int64_t>(width),
                        .target = to,
                        .listener = this,
                        .tag = table});
      statistics_.bytes_read += static_cast<int64_t>(width);
    };
    add(source.codes, width_, target);
    if (source.scales) {
      add(*source.scales, scale_width_, target + width_);
    } else {
      std::memcpy(target + width_,
                  source.scales_in_memory + static_cast<size_t>(row) * scale_width_, scale_width_);
    }
  }
  statistics_.misses += std::ssize(batch.missing);
  statistics_.hits += std::ssize(batch.rows) - std::ssize(batch.missing);
  {
    const std::lock_guard lock(mutex_);
    batch.reads = std::ssize(reads_);
    batch.error.reset();
  }
  if (!reads_.empty()) reader_.start(reads_);
}

void RowStore::request(std::span<const int64_t> rows, int64_t tokens) {
  {
    // A step that failed may have left reads behind; they write into the records.
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] {
      return std::ranges::all_of(batches_, [](const Batch& batch) { return batch.reads == 0; });
    });
  }
  for (size_t table = 0; table < tables_.size(); ++table) {
    distinct(batches_[table], table, rows, tokens);
    start_reads(table);
  }
}

bool RowStore::holds(size_t table, std::span<const int64_t> rows, int64_t tokens) const {
  const Batch& batch = batches_[table];
  const size_t columns = rows.size() / static_cast<size_t>(tokens) / tables_.size();
  if (batch.record_of.size() != static_cast<size_t>(tokens) * columns) return false;
  for (size_t place = 0; place < batch.record_of.size(); ++place) {
    const int64_t row =
        rows[(place / columns * tables_.size() + table) * columns + place % columns];
    if (batch.rows[static_cast<size_t>(batch.record_of[place])] != row) return false;
  }
  return true;
}

Status RowStore::wait(size_t table, std::span<const int64_t> rows, int64_t tokens) {
  if (!holds(table, rows, tokens)) request(rows, tokens);
  Batch& batch = batches_[table];
  const double start = now();
  {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return batch.reads == 0; });
  }
  statistics_.wait_seconds += now() - start;
  if (batch.error) {
    // Not to be mistaken for rows that are there.
    batch.record_of.clear();
    return fail(*batch.error);
  }
  for (const int32_t record : batch.missing) {
    cache_.insert(key(table, batch.rows[static_cast<size_t>(record)]),
                  batch.records.data() + static_cast<size_t>(record) * record_bytes_);
  }
  batch.missing.clear();
  return {};
}

RowStoreStatistics RowStore::statistics() const { return statistics_; }

void RowStore::read_done(const FileRead& read, const Status& status) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[read.tag];
  if (!status && !batch.error) batch.error = status.error();
  if (--batch.reads == 0) arrived_.notify_all();
}

}  // namespace cachalot
