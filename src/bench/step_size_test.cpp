#include "bench/step_size.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot::bench {
namespace {

TEST(StepSizes, AreReadWithUnits) {
  const auto sizes = parse_sizes("--contexts", "1M,0,4K,32k,4096", 0);
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(*sizes, (std::vector<int64_t>{0, 4096, 32768, 1048576}));
  EXPECT_EQ(short_size(4096), "4K");
  EXPECT_EQ(short_size(1048576), "1M");
  EXPECT_EQ(short_size(5000), "5000");
  EXPECT_EQ(short_size(0), "0");
}

TEST(StepSizes, SayWhatIsWrongWithThem) {
  for (const char* text : {"x", "4X", "4KK", "1,", "-1", "0", "5000M", "99999999999999999999"}) {
    const auto sizes = parse_sizes("--tokens", text, 1);
    ASSERT_FALSE(sizes.has_value()) << text;
    EXPECT_TRUE(sizes.error().message.starts_with("--tokens: expected")) << sizes.error().message;
  }
  EXPECT_FALSE(parse_phases("--phases", "decode,encode").has_value());
}

TEST(StepSizes, SweepTokensAtTheFirstContextAndContextsAtOneToken) {
  const auto steps = steps_to_run({.phases = {Phase::decode}}, 0);
  const auto count = [&](auto&& matches) { return std::ranges::count_if(steps, matches); };
  EXPECT_EQ(count([](const StepSize& s) { return s.context == 0; }), 5);
  EXPECT_EQ(count([](const StepSize& s) { return s.tokens == 1; }), 5);
  EXPECT_EQ(std::ssize(steps), 9);
  const auto chosen =
      steps_to_run({.phases = {Phase::decode}, .tokens = {1, 3}, .contexts = {7, 9}}, 0);
  EXPECT_EQ(std::ssize(chosen), 4);
}

TEST(StepSizes, LeaveDraftsOutOfModelsWithoutThem) {
  for (const StepSize& step : steps_to_run({}, 0)) {
    EXPECT_NE(step.phase, Phase::draft);
    EXPECT_NE(step.phase, Phase::verify);
  }
  const auto steps = steps_to_run({}, 5);
  EXPECT_TRUE(std::ranges::any_of(
      steps, [](const StepSize& s) { return s.phase == Phase::verify && s.tokens == 6; }));
}

TEST(Filters, ArePartsOfANameOrPatterns) {
  EXPECT_TRUE(row_matches("experts/decode/tokens1", ""));
  EXPECT_TRUE(row_matches("experts/decode/tokens1", "decode"));
  EXPECT_TRUE(row_matches("experts/decode/tokens1", "exp*/tokens?"));
  EXPECT_FALSE(row_matches("experts/decode/tokens16", "exp*/tokens?"));
  EXPECT_FALSE(row_matches("experts/decode/tokens1", "prefill"));
}

TEST(Filters, LeaveOutStepsThatCannotMatch) {
  const StepSize decode{Phase::decode, 4, 0}, prefill{Phase::prefill, 32, 0};
  for (const char* filter : {"", "experts", "experts/decode/tokens4", "*/decode/*", "decode/tok"}) {
    EXPECT_TRUE(step_can_match(decode, filter)) << filter;
  }
  for (const char* filter : {"experts/decode/tokens4", "*/decode/*", "decode/tok", "*/*/tokens4"}) {
    EXPECT_FALSE(step_can_match(prefill, filter)) << filter;
  }
}

TEST(StepSizes, VerifyAnAnchorAndAtLeastOneDraft) {
  const auto steps =
      steps_to_run({.phases = {Phase::verify}, .tokens = {1, 2, 6}, .contexts = {0}}, 5);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].tokens, 2);
  EXPECT_EQ(steps[1].tokens, 6);
}

TEST(StepSizes, NameTheOptionThatLeftNoRow) {
  const StepChoice drafts{.phases = {Phase::draft, Phase::verify}, .tokens = {}, .contexts = {}};
  EXPECT_TRUE(
      why_no_row(drafts, 0, "").starts_with("--phases: draft and verify need a draft head"));
  EXPECT_NE(why_no_row(drafts, 5, "nothing").find("\"nothing\""), std::string::npos);
  const StepChoice shortcut{.phases = {Phase::shortcut}, .tokens = {}, .contexts = {}};
  EXPECT_TRUE(why_no_row(shortcut, 5, "").starts_with("--phases"));
}

}  // namespace
}  // namespace cachalot::bench
