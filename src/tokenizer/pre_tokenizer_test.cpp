#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

using nlohmann::json;
using Pieces = std::vector<std::string_view>;

json v41_description() {
  return json::parse(read_file(data_path("tokenizers/v41/tokenizer.json")))["pre_tokenizer"];
}

TEST(PreTokenizer, HandWrittenPassEqualsThePatterns) {
  const json description = v41_description();
  const auto fast = PreTokenizer::create(description).value();
  const auto slow = PreTokenizer::create(description, PreTokenizer::Method::by_patterns).value();
  std::mt19937 random(5);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random, 1 + static_cast<int>(random() % 25));
    Pieces expected, found;
    slow.split(text, expected);
    fast.split(text, found);
    ASSERT_EQ(found, expected) << json(text);
    std::string joined;
    for (const std::string_view piece : found) joined += piece;
    ASSERT_EQ(joined, text);
  }
}

TEST(PreTokenizer, KeepsIllFormedBytesAsPieces) {
  const auto split = PreTokenizer::create(v41_description()).value();
  Pieces pieces;
  split.split("ab\xFF\xE4\xBD\xC0 12\xF0", pieces);
  EXPECT_EQ(pieces, (Pieces{"ab", "\xFF\xE4\xBD\xC0", " ", "12", "\xF0"}));
}

std::string refusal(const json& step) {
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto result = PreTokenizer::create(
      {{"type", "Sequence"}, {"pretokenizers", json::array({step, byte_level})}});
  return result ? "" : result.error().message;
}

json split_step(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

TEST(PreTokenizer, RefusesWhatItDoesNotKnowByName) {
  EXPECT_NE(refusal({{"type", "Metaspace"}}).find("Metaspace"), std::string::npos);
  EXPECT_NE(refusal(nullptr).find("null"), std::string::npos);
  json step = split_step("a");
  step["behavior"] = "MergedWithNext";
  EXPECT_NE(refusal(step).find("MergedWithNext"), std::string::npos);
  step = split_step("a");
  step["pattern"] = {{"String", "a"}};
  EXPECT_NE(refusal(step).find("String"), std::string::npos);
  for (const char* pattern : {"\\w+",    "a\\b",
                              "^a",      "a$",
                              ".",       "[a[b]]",
                              "[a&&b]",  "(a)",
                              "(?:a+)+", "a*",
                              "a{2}+",   "[",
                              "(?:a",    "a)",
                              "\\p{",    "\\",
                              "\\u12",   "[b-a]",
                              "[\\S]",   "a**",
                              "+",       "\\p{NoSuchThing}"}) {
    EXPECT_NE(refusal(split_step(pattern)), "") << pattern;
  }
  for (const char* pattern :
       {"\\u4e00+", "(?i:'s|'t)?\\p{Lu}", "[^\\r\\n\\p{L}]?\\p{L}+(?!\\S)", " ?a{1,3}"}) {
    EXPECT_EQ(refusal(split_step(pattern)), "") << pattern;
  }
}

}  // namespace
}  // namespace cachalot
