#include "chat/json_value.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

std::string round_trip(std::string_view text) {
  auto value = parse_json(text);
  return value ? value->dump() : "error: " + value.error().message;
}

bool refused(std::string_view text) { return !parse_json(text); }

TEST(JsonValue, PrintsAsPythonDoes) {
  EXPECT_EQ(round_trip(R"( {"b" : [1,2 , true,null], "a":{} , "c":[]} )"),
            R"({"b": [1, 2, true, null], "a": {}, "c": []})");
  EXPECT_EQ(round_trip(R"("\u00e9\/\u2028\u007f\n\r\t\b\f\u0001\"\\")"),
            "\"\u00e9/\u2028\x7f\\n\\r\\t\\b\\f\\u0001\\\"\\\\\"");
}

// Expectations: repr(float(text)) of Python 3.11.
TEST(JsonValue, PrintsFloatsAsPythonsRepr) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.0", "1.0"},
      {"1e0", "1.0"},
      {"0.1", "0.1"},
      {"-0.0", "-0.0"},
      {"1e-5", "1e-05"},
      {"0.0001", "0.0001"},
      {"0.00012", "0.00012"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"1.5e16", "1.5e+16"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1234567.125", "1234567.125"},
      {"1e-400", "0.0"},
      {"5e-324", "5e-324"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e100", "1e+100"},
      {"-12.50", "-12.5"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"100.0", "100.0"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(round_trip(text), expected) << text;
}

TEST(JsonValue, KeepsIntegersOfAnySize) {
  EXPECT_EQ(round_trip("12345678901234567890123456789"), "12345678901234567890123456789");
  EXPECT_EQ(round_trip("-12345678901234567890"), "-12345678901234567890");
  EXPECT_EQ(round_trip("-0"), "0");
  EXPECT_EQ(parse_json("9223372036854775807")->int64(), 9223372036854775807);
  EXPECT_FALSE(parse_json("9223372036854775808")->int64());
  EXPECT_FALSE(parse_json("1.0")->int64());
}

TEST(JsonValue, KeepsTheLastOfRepeatedKeysAtTheFirstPlace) {
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(JsonValue, EscapesEverythingIfASurrogateIsAlone) {
  EXPECT_EQ(round_trip(R"(["\ud83d\ude00", "é"])"), "[\"😀\", \"é\"]");
  EXPECT_EQ(round_trip(R"(["\ud83d", "é", "😀", "\ud83d\u0041", "\ude00"])"),
            R"(["\ud83d", "\u00e9", "\ud83d\ude00", "\ud83dA", "\ude00"])");
  EXPECT_EQ(replace_lone_surrogates(*parse_json(R"("a\ud83db")")->string()), "a\uFFFDb");
}

TEST(JsonValue, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "{:",
                           "[1,]",
                           "{\"a\":1,}",
                           "nul",
                           "NaN",
                           "Infinity",
                           "-Infinity",
                           "01",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "-",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\n\"",
                           "1 2",
                           "[1 2]",
                           "{1:2}",
                           "\xEF\xBB\xBF{}",
                           "\"\xE9\"",
                           "\"\xC0\x80\"",
                           "\"\xED\xA0\x80\"",
                           "1e400",
                           "{\"a\" 1}"}) {
    EXPECT_TRUE(refused(text)) << text;
  }
  EXPECT_EQ(parse_json("[1, x]").error().message.find("invalid JSON at byte 4"), 0u);
}

TEST(JsonValue, LimitsItsDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_FALSE(refused(nested(kJsonDepthLimit)));
  EXPECT_TRUE(refused(nested(kJsonDepthLimit + 2)));
  EXPECT_TRUE(refused(std::string(2000000, '[')));
}

TEST(JsonValue, MutatedTextNeverCrashes) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e9\ud83d\ude00"], "b": {"c": null}})";
  for (size_t at = 0; at < text.size(); ++at) {
    round_trip(text.substr(0, at));
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      if (auto value = parse_json(changed)) {
        EXPECT_EQ(round_trip(value->dump()), value->dump());
      }
    }
  }
}

}  // namespace
}  // namespace cachalot
