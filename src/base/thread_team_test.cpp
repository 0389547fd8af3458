#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_info.h"

namespace cachalot {
namespace {

TEST(ThreadTeam, RunsEveryMemberOnce) {
  for (const auto& shape : {std::pair(1, ThreadTeam::kSpins),
                            {2, ThreadTeam::kSpins},
                            {2, 0},
                            {2, 20 * ThreadTeam::kSpins},
                            {3, ThreadTeam::kSpins},
                            {8, ThreadTeam::kSpins}}) {
    const int threads = shape.first;  // clang 14 captures no part of a binding
    ThreadTeam team(threads, shape.second);
    ASSERT_EQ(team.size(), threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(threads);
      team.run([&](const TeamMember& member) {
        EXPECT_EQ(member.count(), threads);
        ++calls[member.index()];
      });
      EXPECT_EQ(calls, std::vector<int>(threads, 1));
    }
  }
}

TEST(ThreadTeam, BarrierMakesWritesVisible) {
  for (int threads : {1, 2, 5, 23}) {
    ThreadTeam team(threads);
    std::vector<int64_t> values(threads, 1);
    std::vector<int64_t> sums(threads);
    team.run([&](const TeamMember& member) {
      for (int round = 0; round < 100; ++round) {
        int64_t sum = 0;
        for (int64_t value : values) sum += value;
        member.barrier();
        values[member.index()] = sum % 1000003;
        sums[member.index()] = sum;
        member.barrier();
      }
    });
    for (int64_t sum : sums) EXPECT_EQ(sum, sums[0]);
  }
}

TEST(ThreadTeam, StopsWithoutHavingRun) {
  for (int round = 0; round < 20; ++round) ThreadTeam team(4);
}

TEST(ThreadTeam, RunAloneStaysOnTheCallingThread) {
  ThreadTeam team(2);
  const auto caller = std::this_thread::get_id();
  team.run_alone([&](const TeamMember& member) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(member.count(), 1);
    member.barrier();
  });
}

TEST(ThreadTeam, KeepsAwayWhereOthersComeLate) {
  ThreadTeam team(2);
  EXPECT_FALSE(team.keeps_away());
  for (int round = 0; round < 20; ++round) {
    team.run([](const TeamMember& member) {
      if (member.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
  }
  EXPECT_TRUE(team.keeps_away());
}

TEST(ThreadTeamDeathTest, NestedRunIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadTeam team(1);
        team.run([&](const TeamMember&) { team.run([](const TeamMember&) {}); });
      },
      "nested");
}

TEST(CpuInfo, NamesRoundTrip) {
  for (Isa isa : kAllIsas) EXPECT_EQ(isa_named(name_of(isa)), isa);
  EXPECT_FALSE(isa_named("sse9"));
}

TEST(CpuInfo, ChoosingAnUnknownOrMissingIsaIsAnError) {
  EXPECT_TRUE(choose_isa("generic"));
  const auto unknown = choose_isa("AVX2");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("found \"AVX2\""), std::string::npos);
  for (Isa isa : kAllIsas) EXPECT_EQ(choose_isa(name_of(isa)).has_value(), supports(isa));
}

TEST(CpuInfo, TheProcessMayUseSomeCpu) { EXPECT_FALSE(available_cpus().empty()); }

}  // namespace
}  // namespace cachalot
