#include "engine/page_pool.h"

namespace cachalot {

PagePool::PagePool(int64_t pages) : users_(static_cast<size_t>(pages)) {
  free_.reserve(users_.size());
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

int64_t PagePool::free() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(free_);
}

int32_t PagePool::take() {
  const std::lock_guard lock(mutex_);
  CACHALOT_CHECK(!free_.empty(), "all {} pages are in use", users_.size());
  const int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::share(std::span<const int32_t> pages) {
  const std::lock_guard lock(mutex_);
  for (const int32_t page : pages) {
    int32_t& users = users_[static_cast<size_t>(page)];
    CACHALOT_CHECK(users > 0, "page {} is free", page);
    ++users;
  }
}

void PagePool::release(std::span<const int32_t> pages) {
  const std::lock_guard lock(mutex_);
  for (const int32_t page : pages) {
    int32_t& users = users_[static_cast<size_t>(page)];
    CACHALOT_CHECK(users > 0, "page {} is free", page);
    if (--users == 0) free_.push_back(page);
  }
}

int64_t PagePool::users(int32_t page) const {
  const std::lock_guard lock(mutex_);
  return users_[static_cast<size_t>(page)];
}

}  // namespace cachalot
