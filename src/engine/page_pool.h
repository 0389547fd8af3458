// The pages of the caches and how many sequences and saved states use each. Thread-safe: a saved
// state may be dropped by whoever held it last.
//
// A page is written only by the one that uses it alone.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/check.h"

namespace cachalot {

class PagePool {
 public:
  explicit PagePool(int64_t pages);

  int64_t total() const { return static_cast<int64_t>(users_.size()); }
  int64_t free() const;

  // A page with one user. There is a free one.
  int32_t take();
  // One user more, one less; the page is free again after its last.
  void share(std::span<const int32_t> pages);
  void release(std::span<const int32_t> pages);
  int64_t users(int32_t page) const;
  bool shared(int32_t page) const { return users(page) > 1; }

 private:
  mutable std::mutex mutex_;
  std::vector<int32_t> users_;  // by page
  std::vector<int32_t> free_;
};

// The use of some pages; ends with it.
class SharedPages {
 public:
  SharedPages(std::shared_ptr<PagePool> pool, std::span<const int32_t> pages)
      : pool_(std::move(pool)), pages_(pages.begin(), pages.end()) {
    pool_->share(pages_);
  }
  ~SharedPages() { pool_->release(pages_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::span<const int32_t> pages() const { return pages_; }
  // Of one page, this one included.
  int64_t users_of(int32_t page) const { return pool_->users(page); }

 private:
  std::shared_ptr<PagePool> pool_;
  std::vector<int32_t> pages_;
};

}  // namespace cachalot
