// The ids of words met before. One user at a time; WordCachePool hands caches to threads.
//
// A fixed table in which a word replaces another of the same slot: bounded memory, and since a hit
// compares the whole word, never a different result.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/hash.h"

namespace cachalot {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 23, kMaxIds = 9;

  // A word of 1 .. kMaxBytes bytes, ready for look-up.
  class Key {
   public:
    explicit Key(std::string_view word) {
      char bytes[24] = {};
      std::memcpy(bytes, word.data(), word.size());
      bytes[kMaxBytes] = static_cast<char>(word.size());
      std::memcpy(words_.data(), bytes, sizeof bytes);
    }
    size_t slot() const { return mix_bits(mix_bits(words_[0], words_[1]), words_[2]) % kEntries; }
    bool operator==(const Key&) const = default;

   private:
    friend class WordCache;
    Key() = default;
    std::array<uint64_t, 3> words_{};  // the bytes, zeros, the length; all zero: no word
  };

  WordCache() : entries_(kEntries) {}

  // Empty: not known.
  std::span<const int32_t> find(const Key& key) const {
    const Entry& entry = entries_[key.slot()];
    return entry.key == key ? std::span(entry.ids.data(), entry.count) : std::span<const int32_t>();
  }

  // Words of more than kMaxIds ids are not kept.
  void put(const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[key.slot()];
    entry.key = key;
    entry.count = static_cast<uint32_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kEntries = 1 << 15;
  struct Entry {
    Key key;
    uint32_t count = 0;
    std::array<int32_t, kMaxIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;  // 2 MiB
};

class WordCachePool {
 public:
  // A cache nobody else uses, returned when the lease ends.
  class Lease {
   public:
    explicit Lease(WordCachePool& pool) : pool_(pool), cache_(pool.take()) {}
    ~Lease() { pool_.give(std::move(cache_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    WordCache& cache() { return *cache_; }

   private:
    WordCachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  static constexpr size_t kMaxIdle = 16;

  std::unique_ptr<WordCache> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto cache = std::move(idle_.back());
        idle_.pop_back();
        return cache;
      }
    }
    return std::make_unique<WordCache>();
  }
  void give(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(cache));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
};

}  // namespace cachalot
