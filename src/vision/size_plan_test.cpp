#include "vision/size_plan.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

struct Case {
  int64_t width, height, grid_height, grid_width, padded_height, padded_width, tokens;
};

// spec: vision, section 2.
constexpr Case kCases[] = {
    {544, 544, 13, 13, 546, 546, 184},     {1, 1, 13, 13, 546, 546, 184},
    {640, 480, 12, 16, 490, 644, 206},     {800, 600, 15, 20, 602, 812, 317},
    {1024, 768, 19, 25, 770, 1036, 496},   {1280, 720, 18, 31, 728, 1288, 578},
    {1920, 1080, 23, 41, 966, 1708, 968},  {999, 1001, 24, 24, 1008, 1008, 602},
    {2222, 3333, 38, 25, 1568, 1050, 990}, {4096, 4096, 31, 31, 1302, 1302, 994},
    {12000, 300, 5, 200, 210, 8400, 1007}, {300, 12000, 160, 4, 6720, 168, 802},
    {50000, 10, 1, 1021, 42, 42882, 1024}, {10, 50000, 511, 1, 21462, 42, 1024},
};

TEST(SizePlan, AgreesWithTheReferencesTable) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.width << " x " << c.height);
    const auto plan = plan_image(c.width, c.height);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->grid_height, c.grid_height);
    EXPECT_EQ(plan->grid_width, c.grid_width);
    EXPECT_EQ(plan->height, c.padded_height);
    EXPECT_EQ(plan->width, c.padded_width);
    EXPECT_EQ(plan->tokens(), c.tokens);
  }
}

TEST(SizePlan, StaysInsideEveryBudget) {
  for (const int64_t tokens : {4, 5, 7, 64, 383, 1024}) {
    for (int64_t width = 1; width < 4000; width += width / 3 + 1) {
      for (int64_t height = 1; height < 4000; height += height / 3 + 1) {
        const auto plan = plan_image(width, height, {.max_tokens = tokens});
        ASSERT_TRUE(plan) << plan.error().message << " tokens " << tokens;
        EXPECT_LE(plan->tokens(), tokens);
        EXPECT_EQ(plan->width % 14, 0);
        EXPECT_EQ(plan->height % 14, 0);
      }
    }
  }
}

TEST(SizePlan, RefusesABudgetThatHoldsNoPicture) {
  EXPECT_EQ(plan_image(10, 10, {.max_tokens = 3}).error().message,
            "a picture's tokens must be limited to 4..1048576, found 3");
  EXPECT_FALSE(plan_image(10, 10, {.min_pixels = -1}));
}

}  // namespace
}  // namespace cachalot
