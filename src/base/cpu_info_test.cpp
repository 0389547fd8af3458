#include "base/cpu_info.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

TEST(CpuInfo, TheDefaultIsSomethingTheMachineRuns) {
  EXPECT_TRUE(supports(default_isa()));
  EXPECT_TRUE(supports(Isa::generic));
  EXPECT_TRUE(supports(best_isa()));
}

TEST(CpuInfo, NamesGoBothWays) {
  for (const Isa isa : kAllIsas) EXPECT_EQ(isa_named(name_of(isa)), isa);
  EXPECT_FALSE(isa_named("sse2"));
}

TEST(CpuInfo, AnInstructionSetTheMachineLacksIsRefusedByName) {
  const auto unknown = choose_isa("sse2");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"sse2\""), std::string::npos);
  for (const Isa isa : kAllIsas) EXPECT_EQ(choose_isa(name_of(isa)).has_value(), supports(isa));
}

TEST(CpuInfo, AProcessHasAtLeastOneCpu) {
  EXPECT_FALSE(available_cpus().empty());
  EXPECT_GE(cpus_at_once(), 1);
  EXPECT_LE(cpus_at_once(), std::ssize(available_cpus()));
}

TEST(CpuInfo, AQuotaIsACountOfCpusRoundedUp) {
  EXPECT_EQ(cpus_of_quota("800000 100000"), 8);
  EXPECT_EQ(cpus_of_quota("150000 100000\n"), 2);
  EXPECT_EQ(cpus_of_quota("1000 100000"), 1);
  EXPECT_EQ(cpus_of_quota("9223372036854775807 1"), 1 << 20);
  for (const char* none :
       {"max 100000", "", "100000", "0 100000", "100000 0", "-1 100000", "x y"}) {
    EXPECT_EQ(cpus_of_quota(none), std::nullopt) << none;
  }
}

}  // namespace
}  // namespace cachalot
