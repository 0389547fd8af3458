// RowCache: small records by number, the ones used lately. Sets of eight; in a set the record used
// longest ago goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace cachalot {

class RowCache {
 public:
  // As many records of `record_bytes` as fit into the budget with what it takes to find them.
  RowCache(int64_t budget_bytes, int64_t record_bytes)
      : record_bytes_(static_cast<size_t>(record_bytes)),
        sets_(static_cast<size_t>(budget_bytes) / (kWays * (record_bytes_ + sizeof(Way)))),
        ways_(sets_ * kWays),
        records_(sets_ * kWays * record_bytes_) {}

  int64_t capacity() const { return std::ssize(ways_); }
  int64_t bytes() const {
    return std::ssize(records_) + std::ssize(ways_) * static_cast<int64_t>(sizeof(Way));
  }

  // nullptr: not there. Valid until the next insert.
  const std::byte* find(uint64_t key) {
    if (sets_ == 0) return nullptr;
    const size_t first = set_of(key) * kWays;
    for (size_t way = first; way < first + kWays; ++way) {
      if (ways_[way].key != key + 1) continue;
      ways_[way].used = ++clock_;
      return records_.data() + way * record_bytes_;
    }
    return nullptr;
  }

  // A record that is not there yet.
  void insert(uint64_t key, const std::byte* record) {
    if (sets_ == 0) return;
    const size_t first = set_of(key) * kWays;
    size_t oldest = first;
    for (size_t way = first; way < first + kWays; ++way) {
      if (ways_[way].used < ways_[oldest].used) oldest = way;
    }
    ways_[oldest] = {key + 1, ++clock_};
    std::memcpy(records_.data() + oldest * record_bytes_, record, record_bytes_);
  }

 private:
  static constexpr size_t kWays = 8;

  struct Way {
    uint64_t key = 0;  // plus one; 0: empty
    uint64_t used = 0;
  };

  size_t set_of(uint64_t key) const {
    // Fibonacci hashing: neighbouring rows go to different sets.
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 32) % sets_;
  }

  size_t record_bytes_, sets_;
  uint64_t clock_ = 0;
  std::vector<Way> ways_;
  std::vector<std::byte> records_;
};

}  // namespace cachalot
