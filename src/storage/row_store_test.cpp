#include "storage/row_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "storage/test_file.h"

namespace cachalot {
namespace {

constexpr int64_t kRows = 3000, kColumns = 4;
constexpr size_t kWidth = 256, kScaleWidth = 8;

struct Tables {
  Tables() : file(77 + 2 * kRows * (kWidth + kScaleWidth)) {
    const auto bytes = std::as_bytes(std::span(file.content()));
    size_t next = 77;
    for (MappedTable& table : tables) {
      table.rows = kRows;
      table.codes = bytes.subspan(next, kRows * kWidth);
      next += table.codes.size();
      table.scales = bytes.subspan(next, kRows * kScaleWidth);
      next += table.scales.size();
    }
    map.emplace(std::vector<MappedPart>{{file.path(), bytes}});
    files = *map->open(true);
    reader = *make_file_reader(ReaderKind::best, files, 32);
  }

  void expect_rows(RowStore& store, const std::vector<int64_t>& rows) const {
    const auto tokens = std::ssize(rows) / (2 * kColumns);
    for (size_t table = 0; table < 2; ++table) {
      const auto status = store.wait(table, rows, tokens);
      ASSERT_TRUE(status) << status.error().message;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = 0; c < kColumns; ++c) {
          const auto row = static_cast<size_t>(
              rows[static_cast<size_t>((t * 2 + static_cast<int64_t>(table)) * kColumns + c)]);
          const RowBytes got = store.row(table, static_cast<size_t>(t * kColumns + c));
          EXPECT_EQ(std::memcmp(got.codes, &tables[table].codes[row * kWidth], kWidth), 0);
          EXPECT_EQ(std::memcmp(got.scales, &tables[table].scales[row * kScaleWidth], kScaleWidth),
                    0);
        }
      }
    }
  }

  TestFile file;
  MappedTable tables[2];
  std::optional<FileMap> map;
  std::vector<DirectFile> files;
  std::unique_ptr<FileReader> reader;
};

std::vector<int64_t> random_rows(int64_t tokens, int64_t below, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> rows(static_cast<size_t>(tokens * 2 * kColumns));
  for (int64_t& row : rows) row = static_cast<int64_t>(random()) % below;
  return rows;
}

TEST(RowStore, GivesTheRowsWhateverTheCacheHolds) {
  const Tables tables;
  for (const int64_t budget : {0, 5000, 100'000, 10'000'000}) {
    RowStore store(*tables.reader, *tables.map, tables.tables, budget);
    EXPECT_LE(store.statistics().cache_bytes, budget);
    for (uint32_t step = 0; step < 6; ++step) {
      const auto rows = random_rows(step % 2 == 0 ? 1 : 90, step < 4 ? kRows : 40, step);
      if (step != 3) store.request(rows, std::ssize(rows) / (2 * kColumns));
      tables.expect_rows(store, rows);
    }
  }
}

TEST(RowStore, ReadsARowOnceAStepAndHotOnesNotAgain) {
  const Tables tables;
  RowStore store(*tables.reader, *tables.map, tables.tables, 1 << 20);
  const auto rows = random_rows(200, 40, 1);  // every one of 40 rows in both tables
  tables.expect_rows(store, rows);
  EXPECT_EQ(store.statistics().misses, 80);
  EXPECT_EQ(store.statistics().bytes_read, 80 * int64_t{kWidth + kScaleWidth});
  store.request(rows, 200);
  tables.expect_rows(store, rows);
  EXPECT_EQ(store.statistics().misses, 80);
  EXPECT_EQ(store.statistics().hits, 80);
}

TEST(RowStore, SaysWhatFailedAndReadsItAgain) {
  const Tables tables;
  RowStore store(*tables.reader, *tables.map, tables.tables, 1 << 20);
  const auto rows = random_rows(3, kRows, 2);
  ASSERT_EQ(::truncate(tables.file.path().c_str(), 77), 0);
  const auto status = store.wait(0, rows, 3);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("cut short"), std::string::npos);
  std::ofstream(tables.file.path(), std::ios::binary) << tables.file.content();
  tables.expect_rows(store, rows);
}

TEST(RowCache, KeepsWhatWasUsedLast) {
  RowCache cache(8 * (8 + 16), 8);  // one set of eight
  ASSERT_EQ(cache.capacity(), 8);
  for (uint64_t key = 0; key < 8; ++key) {
    cache.insert(key, reinterpret_cast<const std::byte*>(&key));
  }
  ASSERT_NE(cache.find(0), nullptr);
  const uint64_t other = 99;
  cache.insert(other, reinterpret_cast<const std::byte*>(&other));
  EXPECT_EQ(cache.find(1), nullptr);
  ASSERT_NE(cache.find(0), nullptr);
  EXPECT_EQ(std::memcmp(cache.find(99), &other, 8), 0);
}

}  // namespace
}  // namespace cachalot
