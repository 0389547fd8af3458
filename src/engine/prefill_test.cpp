#include "engine/prefill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cachalot {
namespace {

// "lower 0+4 upper 2+3!": part, first + count, ! with logits.
std::string plan(PrefillMode mode, PrefillState state, int64_t total) {
  EngineOptions options;
  options.max_step_tokens = 4;
  options.shortcut_tail = 3;
  std::string text;
  for (const PrefillStep& step : plan_prefill(mode, state, total, options)) {
    const char* part = step.part == StepPart::whole   ? "whole"
                       : step.part == StepPart::lower ? "lower"
                                                      : "upper";
    text += fmt::format("{}{} {}+{}{}", text.empty() ? "" : " ", part, step.first, step.count,
                        step.logits == LogitsOf::last ? "!" : "");
  }
  return text;
}

TEST(PlanPrefill, RunsWholeStepsInExactMode) {
  EXPECT_EQ(plan(PrefillMode::exact, {0, 0}, 9), "whole 0+4 whole 4+4 whole 8+1!");
  EXPECT_EQ(plan(PrefillMode::exact, {6, 6}, 9), "whole 6+3!");
}

TEST(PlanPrefill, RunsTheUpperLayersOnceOverTheTail) {
  EXPECT_EQ(plan(PrefillMode::shortcut, {0, 0}, 9), "lower 0+4 lower 4+4 lower 8+1 upper 6+3!");
  EXPECT_EQ(plan(PrefillMode::shortcut, {0, 0}, 4), "lower 0+4 upper 1+3!");
}

TEST(PlanPrefill, TakesNoShortcutForTokensThatFitInTheTail) {
  EXPECT_EQ(plan(PrefillMode::shortcut, {0, 0}, 3), "whole 0+3!");
  EXPECT_EQ(plan(PrefillMode::shortcut, {10, 10}, 12), "whole 10+2!");
}

TEST(PlanPrefill, CatchesUpAfterALowerStepThatWasLeftAlone) {
  EXPECT_EQ(plan(PrefillMode::shortcut, {8, 0}, 9), "lower 8+1 upper 6+3!");
  EXPECT_EQ(plan(PrefillMode::shortcut, {8, 7}, 9), "lower 8+1 upper 7+2!");
}

}  // namespace
}  // namespace cachalot
