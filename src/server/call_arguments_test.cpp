#include "server/call_arguments.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

TEST(CallArguments, AreTheObjectTheModelWrote) {
  EXPECT_EQ(arguments_object(R"({"a": [1, {"b": null}]})", true).dump(),
            R"({"a": [1, {"b": null}]})");
  EXPECT_EQ(arguments_object("{}", true).dump(), "{}");
}

TEST(CallArguments, KeepATextThatIsNoObject) {
  EXPECT_EQ(arguments_object(R"({"a": nonsense})", true).dump(),
            R"({"arguments": "{\"a\": nonsense}"})");
}

TEST(CallArguments, CloseATextThatWasCutOff) {
  const auto closed = [](const char* text) { return arguments_object(text, false).dump(); };
  EXPECT_EQ(closed(""), "{}");
  EXPECT_EQ(closed("{"), "{}");
  EXPECT_EQ(closed(R"({"a)"), "{}");
  EXPECT_EQ(closed(R"({"a": "x)"), R"({"a": "x"})");
  EXPECT_EQ(closed(R"({"a": "x\)"), R"({"a": "x"})");
  EXPECT_EQ(closed(R"({"a": "x", "b)"), R"({"a": "x"})");
  EXPECT_EQ(closed(R"({"a": "x", "b": tru)"), R"({"a": "x"})");
  EXPECT_EQ(closed(R"({"a": [1, {"b": 2)"), R"({"a": [1, {"b": 2}]})");
  EXPECT_EQ(closed(R"({"a": ",", "b": [1,)"), R"({"a": ","})");
}

// Pushes the text in pieces of `size` bytes.
std::string input_of(std::string_view arguments, size_t size) {
  InputArgument input;
  std::string text;
  for (size_t i = 0; i < arguments.size(); i += size) text += input.push(arguments.substr(i, size));
  return text + input.finish();
}

TEST(InputArgument, DecodesAnySplitOfTheText) {
  std::string escaped;
  const std::string text = "*** Begin\n\t\"quoted\" \\ back \x01 ü 鯨\n";
  append_json_escaped(escaped, text);
  const std::string arguments = "{\"input\": \"" + escaped + "\"}";
  for (size_t size = 1; size <= arguments.size(); ++size)
    EXPECT_EQ(input_of(arguments, size), text) << size;
}

TEST(InputArgument, TakesArgumentsOfAnotherFormAsTheyAre) {
  EXPECT_EQ(input_of(R"({"patch": "x"})", 3), R"({"patch": "x"})");
  EXPECT_EQ(input_of("{}", 1), "{}");
  EXPECT_EQ(input_of(R"({"mode": 1, "input": "x"})", 4), "x");
  EXPECT_EQ(input_of(R"({"input": 5})", 4), R"({"input": 5})");
}

TEST(InputArgument, EndsWithTheFirstArgument) {
  EXPECT_EQ(input_of(R"({"input": "x", "more": "y"})", 5), "x");
}

}  // namespace
}  // namespace cachalot
