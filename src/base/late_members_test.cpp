#include "base/late_members.h"

#include <gtest/gtest.h>

#include <utility>

namespace cachalot {
namespace {

double now = 0;

class LateMembersTest : public testing::Test {
 protected:
  LateMembersTest() { now = 100; }

  // Runs of a millisecond.
  static void run(LateMembers& late, int runs, double slept) {
    for (int i = 0; i < runs; ++i) {
      now += 1e-3;
      late.add(slept);
    }
  }
};

TEST_F(LateMembersTest, AreWaitedForWhereThatPays) {
  for (const auto& [members, share] : {std::pair(2, 0.49), {4, 0.74}, {16, 0.93}}) {
    LateMembers late(members, LateMembers::kRuns, [] { return now; });
    run(late, 1000, share * 1e-3);
    EXPECT_FALSE(late.keep_away()) << members;
  }
}

TEST_F(LateMembersTest, AreLeftOutForAWhileWhereItDoesNot) {
  for (const auto& [members, share] : {std::pair(2, 0.51), {4, 0.76}, {16, 0.95}}) {
    LateMembers late(members, LateMembers::kRuns, [] { return now; });
    run(late, 10, share * 1e-3);
    EXPECT_FALSE(late.keep_away()) << members;
    run(late, 15, share * 1e-3);
    EXPECT_TRUE(late.keep_away()) << members;
    now += 0.1;
    EXPECT_TRUE(late.keep_away()) << members;
    now += 0.2;
    EXPECT_FALSE(late.keep_away()) << members;
    // Then they have as long as at first.
    run(late, 10, share * 1e-3);
    EXPECT_FALSE(late.keep_away()) << members;
  }
}

TEST_F(LateMembersTest, OneLongWaitIsNotEnough) {
  LateMembers late(2, LateMembers::kRuns, [] { return now; });
  now += 5;
  late.add(5);
  EXPECT_FALSE(late.keep_away());
  run(late, 14, 0.9e-3);
  EXPECT_FALSE(late.keep_away());
}

TEST_F(LateMembersTest, AProcessThatWasStoppedIsNotAloneForLong) {
  for (const int members : {2, 16}) {
    LateMembers late(members, LateMembers::kRuns, [] { return now; });
    now += 300;
    late.add(300);
    run(late, 15, 1e-6);
    now += 2.1;
    EXPECT_FALSE(late.keep_away()) << members;
    run(late, 1000, 1e-6);
    EXPECT_FALSE(late.keep_away()) << members;
  }
}

TEST_F(LateMembersTest, OneLongWaitIsEnoughWhereSomeAreAlwaysLate) {
  LateMembers late(1000, 1, [] { return now; });
  now += 0.5;
  late.add(0.4999);
  EXPECT_TRUE(late.keep_away());
}

TEST_F(LateMembersTest, RunsWithoutWaitsCountByTheirTime) {
  LateMembers late(2, LateMembers::kRuns, [] { return now; });
  for (int i = 0; i < 100; ++i) {
    now += 2e-3;
    run(late, 1, 1e-3);
  }
  EXPECT_FALSE(late.keep_away());
}

}  // namespace
}  // namespace cachalot
