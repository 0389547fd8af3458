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

TEST(CpuInfo, AProcessHasAtLeastOneCpu) { EXPECT_FALSE(available_cpus().empty()); }

}  // namespace
}  // namespace cachalot
