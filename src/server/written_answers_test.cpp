#include "server/written_answers.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

ParsedMessage calling(const std::string& id, const std::string& arguments) {
  ParsedMessage message;
  message.reasoning_content = "think";
  message.finish_reason = "tool_calls";
  ParsedCall call;
  call.id = id;
  call.name = "f";
  call.arguments = arguments;
  call.complete = true;
  message.tool_calls.push_back(call);
  return message;
}

ParsedMessage saying(const std::string& content) {
  ParsedMessage message;
  message.content = content;
  message.finish_reason = "stop";
  return message;
}

Message turn(const std::string& reasoning, const std::string& content) {
  Message message;
  message.role = Role::kAssistant;
  message.reasoning_content = reasoning;
  message.blocks.push_back(TextBlock{content});
  return message;
}

Message calling_turn(const std::string& id, const std::string& arguments) {
  Message message = turn("think", "");
  message.tool_calls.push_back({id, "f", "", *parse_json(arguments)});
  return message;
}

using Ids = std::vector<int32_t>;

TEST(WrittenAnswers, FindsCallsWhateverTheNotationOfTheirArguments) {
  WrittenAnswers written;
  written.remember(calling("call_1", R"({"a": 1, "b": [1, {"x": 2, "y": 3}]})"), true, {5, 6, 7});
  EXPECT_EQ(written.recall(calling_turn("call_1", R"({"b":[1,{"y":3,"x":2}],"a":1})"), true),
            (Ids{5, 6, 7}));
}

TEST(WrittenAnswers, OtherTurnsAreNotTaken) {
  WrittenAnswers written;
  written.remember(calling("call_1", R"({"a": 1})"), true, {5});
  EXPECT_TRUE(written.recall(calling_turn("call_1", R"({"a": 2})"), true).empty());
  EXPECT_TRUE(written.recall(calling_turn("call_2", R"({"a": 1})"), true).empty());
  Message edited = calling_turn("call_1", R"({"a": 1})");
  edited.reasoning_content = "";
  EXPECT_TRUE(written.recall(edited, true).empty());
  Message renamed = calling_turn("call_1", R"({"a": 1})");
  renamed.tool_calls[0].name = "g";
  EXPECT_TRUE(written.recall(renamed, true).empty());
}

TEST(WrittenAnswers, FindsTextByWhatIsRendered) {
  WrittenAnswers written;
  written.remember(saying("hello"), false, {1, 2});
  EXPECT_EQ(written.recall(turn("", "hello"), false), (Ids{1, 2}));
  // Reasoning that the prompt leaves out does not matter; reasoning it has does.
  EXPECT_EQ(written.recall(turn("dropped", "hello"), false), (Ids{1, 2}));
  EXPECT_TRUE(written.recall(turn("", "hello"), true).empty());
  EXPECT_TRUE(written.recall(turn("", "hello!"), false).empty());
}

TEST(WrittenAnswers, LeavesOutWhatDidNotEndByItself) {
  WrittenAnswers written;
  ParsedMessage cut = saying("hello");
  cut.finish_reason = "length";
  written.remember(cut, false, {1});
  ParsedMessage broken = saying("hello");
  broken.failure = "a parameter outside an invoke";
  written.remember(broken, false, {1});
  written.remember(calling("call_1", "{not json"), true, {1});
  EXPECT_EQ(written.size(), 0u);
}

TEST(WrittenAnswers, ForgetsTheOldestBeyondItsBytes) {
  WrittenAnswers written(2000);
  for (int i = 0; i < 100; ++i) {
    written.remember(saying(std::to_string(i)), false, Ids(50, i));
    EXPECT_EQ(written.recall(turn("", "0"), false).size(), 50u) << i;
  }
  EXPECT_LT(written.size(), 10u);
  EXPECT_TRUE(written.recall(turn("", "1"), false).empty());
  EXPECT_EQ(written.recall(turn("", "99"), false), Ids(50, 99));
}

}  // namespace
}  // namespace cachalot
