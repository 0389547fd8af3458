#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& deltas) {
  StopStrings matcher(stops);
  Outcome outcome;
  for (const std::string& delta : deltas) outcome.text += matcher.push(delta);
  if (!matcher.stopped()) outcome.text += matcher.finish();
  outcome.stopped = matcher.stopped();
  return outcome;
}

void expect_for_every_split(const std::vector<std::string>& stops, const std::string& text,
                            const std::string& expected, bool stopped) {
  for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    std::vector<std::string> deltas(1);
    for (size_t i = 0; i < text.size(); ++i) {
      deltas.back() += text[i];
      if (cuts >> i & 1) deltas.emplace_back();
    }
    const Outcome outcome = run(stops, deltas);
    ASSERT_EQ(outcome.text, expected) << "cuts " << cuts;
    ASSERT_EQ(outcome.stopped, stopped) << "cuts " << cuts;
  }
}

TEST(StopStrings, EndTheTextWhereTheyBegin) {
  const std::vector<std::string> deltas = {"ab#", "#c", "d##E", "ND"};
  EXPECT_EQ(run({"##END"}, deltas).text, "ab##cd");
  EXPECT_EQ(run({"#c"}, deltas).text, "ab#");
  EXPECT_EQ(run({"zz"}, deltas).text, "ab##cd##END");
  EXPECT_EQ(run({"ab"}, deltas).text, "");
}

TEST(StopStrings, DoNotDependOnTheSplit) {
  expect_for_every_split({"##END"}, "ab##cd##END", "ab##cd", true);
  expect_for_every_split({"#c", "##END"}, "ab##cd##END", "ab#", true);
  expect_for_every_split({"zz"}, "ab##cd##END", "ab##cd##END", false);
  expect_for_every_split({"aab", "abc"}, "aaaaabcd", "aaa", true);
  expect_for_every_split({"abcd", "bc"}, "xabcdx", "xa", true);  // "bc" is complete first
  expect_for_every_split({"cd", "bcd"}, "xabcdx", "xa", true);   // both end here: the longest
  expect_for_every_split({"abab!"}, "ababab!x", "ab", true);
}

TEST(StopStrings, HoldBackOnlyAPossibleStop) {
  StopStrings matcher({"</end>"});
  EXPECT_EQ(matcher.push("text <"), "text ");
  EXPECT_EQ(matcher.push("/e"), "");
  EXPECT_EQ(matcher.push("m>"), "</em>");
  EXPECT_EQ(matcher.push("</"), "");
  EXPECT_EQ(matcher.finish(), "</");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopStrings, SayWhichOneMatchedAndStaySilentAfterwards) {
  StopStrings matcher({"", "one", "two"});
  EXPECT_EQ(matcher.push("a two b"), "a ");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "two");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace cachalot
