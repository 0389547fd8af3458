#include "backend/cuda/plan/experts_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot::cuda {
namespace {

TEST(ExpertsPlan, TilesHoldAllColumnsAndNoneIsEmpty) {
  for (const int64_t most : {int64_t{kNarrowColumns}, int64_t{kWideColumns}, int64_t{kManyColumns}})
    for (int64_t columns = 1; columns < 20000; ++columns) {
      const int64_t tiles = tiles_of(columns, most), each = columns_per_tile(columns, most);
      ASSERT_LE(each, most);
      ASSERT_EQ(each % kAtomRows, 0);
      ASSERT_GE(tiles * each, columns);
      ASSERT_LT((tiles - 1) * each, columns) << columns << " in tiles of up to " << most;
    }
}

TEST(ExpertsPlan, AClassHoldsItsColumns) {
  for (int columns = 1; columns <= kNarrowColumns; ++columns)
    EXPECT_GE(narrow_class(columns), columns);
  for (int columns = 1; columns <= kManyColumns; ++columns) {
    EXPECT_GE(wide_class(columns), columns);
    EXPECT_LE(wide_class(columns), columns <= kWideColumns ? kWideColumns : kManyColumns);
    EXPECT_GE(many_class(columns), columns);
    EXPECT_LE(many_class(columns), wide_class(columns));
  }
}

// Whatever the tokens choose, there is room for the tiles: the worst is looked for by moving pairs
// between experts so that each tile is as empty as may be.
TEST(ExpertsPlan, ThereIsRoomForEveryTile) {
  for (const int64_t experts : {1, 3, 16, 384})
    for (const int64_t tokens : {1, 33, 50, 100, 1000, 8192}) {
      const ExpertsPlan plan{.tokens = tokens, .choices = 1, .experts = experts};
      for (const int64_t least : {int64_t{kNarrowColumns} + 1, int64_t{kWideColumns} + 1}) {
        int64_t left = plan.pairs(), wide = 0;
        for (int64_t e = 0; e < experts && left > 0; ++e) {
          const int64_t rows = e + 1 == experts || left < least ? left : least;
          if (rows > kNarrowColumns) wide += tiles_of(rows, kWideColumns);
          left -= rows;
        }
        EXPECT_LE(wide, plan.most_wide_tiles());
      }
      EXPECT_LE(std::min(plan.pairs(), experts), plan.most_narrow_tiles());
    }
}

// Experts' rows begin with an atom each; the most rows they may take are there.
TEST(ExpertsPlan, ThereIsRoomForEveryRow) {
  for (const int64_t experts : {1, 3, 16, 384})
    for (const int64_t tokens : {1, 7, 8, 50, 1000, 8192})
      for (const int64_t choices : {1, 6}) {
        const ExpertsPlan plan{.tokens = tokens, .choices = choices, .experts = experts};
        // One row each, and all others of one expert: no choice leaves more places empty.
        const int64_t visited = std::min(experts, plan.pairs());
        const int64_t rows =
            (visited - 1) * kAtomRows + in_whole_atoms(plan.pairs() - (visited - 1));
        EXPECT_LE(rows, plan.shared_row());
        EXPECT_EQ(plan.shared_row() % kAtomRows, 0);
        EXPECT_GE(plan.row_capacity(), plan.shared_row() + tokens);
        EXPECT_EQ(plan.row_capacity() % kAtomRows, 0);
      }
}

TEST(ExpertsPlan, FewTokensNeedNoWideTile) {
  EXPECT_FALSE((ExpertsPlan{.tokens = kNarrowColumns, .choices = 6, .experts = 384}.any_wide()));
  EXPECT_TRUE((ExpertsPlan{.tokens = kNarrowColumns + 1, .choices = 6, .experts = 384}.any_wide()));
  EXPECT_EQ((ExpertsPlan{.tokens = 8192, .choices = 6, .experts = 384}.shared_tiles()), 54);
}

TEST(ExpertsPlan, TilesOfTheSharedExpertHoldAllTokens) {
  for (const int64_t tokens : {1, 16, 17, 500, 4096, 7680, 8192, 16384}) {
    const ExpertsPlan plan{.tokens = tokens, .choices = 6, .experts = 384};
    EXPECT_GE(plan.shared_tiles() * plan.shared_columns(), tokens);
    EXPECT_LE(plan.shared_columns(), plan.many_rows() ? kManySharedColumns : kWideColumns);
    EXPECT_LT((plan.shared_tiles() - 1) * plan.shared_columns(), tokens);
  }
}

}  // namespace
}  // namespace cachalot::cuda
