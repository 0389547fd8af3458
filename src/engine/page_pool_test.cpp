#include "engine/page_pool.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

TEST(PagePool, FreesAPageAfterItsLastUser) {
  const auto pool = std::make_shared<PagePool>(3);
  const int32_t pages[] = {pool->take(), pool->take()};
  EXPECT_EQ(pool->free(), 1);
  EXPECT_FALSE(pool->shared(pages[0]));
  {
    const SharedPages shared(pool, pages);
    EXPECT_TRUE(pool->shared(pages[0]));
    EXPECT_EQ(shared.users_of(pages[1]), 2);
    pool->release(pages);
    EXPECT_EQ(pool->free(), 1);
  }
  EXPECT_EQ(pool->free(), 3);
}

TEST(PagePool, HoldsBugsToTheirPlace) {
  PagePool pool(1);
  const int32_t page = pool.take();
  EXPECT_DEATH(pool.take(), "all 1 pages are in use");
  pool.release({&page, 1});
  EXPECT_DEATH(pool.release({&page, 1}), "page 0 is free");
}

}  // namespace
}  // namespace cachalot
