#include "engine/row_shares.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

using Rows = std::vector<int64_t>;

TEST(RowShares, AreEqualWhereAllWantMore) {
  EXPECT_EQ(share_rows(Rows{100, 100, 100}, 60), (Rows{20, 20, 20}));
}

TEST(RowShares, GiveWhatShortPromptsLeaveToTheOthers) {
  EXPECT_EQ(share_rows(Rows{1000, 3, 1000}, 63), (Rows{30, 3, 30}));
}

TEST(RowShares, GiveARemainderToTheLongest) {
  EXPECT_EQ(share_rows(Rows{9, 10, 9}, 8), (Rows{2, 3, 3}));
}

TEST(RowShares, NeverExceedWhatIsWantedOrThere) {
  EXPECT_EQ(share_rows(Rows{2, 3}, 100), (Rows{2, 3}));
  EXPECT_EQ(share_rows(Rows{2, 3}, 0), (Rows{0, 0}));
  EXPECT_EQ(share_rows(Rows{}, 10), Rows{});
}

}  // namespace
}  // namespace cachalot
