#include "backend/cuda/plan/token_experts_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot::cuda {
namespace {

// Runs follow one another and end where all is given out.
TEST(TokenExpertsPlan, EveryPartIsOfOneBlock) {
  for (const int blocks : {1, 5, 48, 78, 114, 132})
    for (const int choices : {1, 6, 7})
      for (const int width : {128, 512, 2048, 2304})
        for (const int dim : {256, 1024, 5120, 7168})
          for (const bool shared_first : {false, true}) {
            const TokenExpertsPlan plan(blocks, choices, dim, width, shared_first);
            TokenShare next{};
            for (int block = 0; block < blocks; ++block) {
              const TokenShare share = plan.of(block);
              ASSERT_EQ(share.shared_unit, next.shared_unit);
              ASSERT_EQ(share.routed_unit, next.routed_unit);
              ASSERT_EQ(share.octet, next.octet);
              next.shared_unit += share.shared_units;
              next.routed_unit += share.routed_units;
              next.octet += share.octets;
            }
            EXPECT_EQ(next.shared_unit, width / kUnitValues);
            EXPECT_EQ(next.routed_unit, choices * width / kUnitValues);
            EXPECT_EQ(next.octet, dim / kOctetRows);
          }
}

// Of the released model: no block has more than a unit of FP4 more than another. One of the
// shared expert counts as one of these where it begins before they can, else by its bytes.
TEST(TokenExpertsPlan, BlocksHaveAlikeMuch) {
  for (const bool shared_first : {false, true}) {
    const TokenExpertsPlan plan(132, 6, 5120, 2304, shared_first);
    const double one_shared = shared_first ? 1 : 128.0 / 68;
    double least = 1e9, most = 0;
    for (int block = 0; block < 132; ++block) {
      const TokenShare share = plan.of(block);
      const double load = share.shared_units * one_shared + share.routed_units;
      least = std::min(least, load);
      most = std::max(most, load);
      EXPECT_LE(2 * share.shared_units + share.routed_units, 5);
      EXPECT_GE(share.octets, 4);
      EXPECT_LE(share.octets, 5);
    }
    EXPECT_LE(most - least, 1.01);
  }
}

}  // namespace
}  // namespace cachalot::cuda
