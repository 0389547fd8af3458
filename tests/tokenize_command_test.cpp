#include "tokenize_command.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>
#include <string>

namespace cachalot {
namespace {

struct Outcome {
  std::string output, error;
};

Outcome tokenize(const std::string& input, bool decode = false, bool compatible = false,
                 const std::string& model = CACHALOT_SOURCE_DIR "/tests/data/tokenizers/v41") {
  std::istringstream in(input);
  std::ostringstream out;
  const Status status = tokenize_lines({model, decode, compatible}, in, out);
  return {out.str(), status ? "" : status.error().message};
}

TEST(TokenizeCommand, ConvertsLinesBothWays) {
  const Outcome plain = tokenize("{\"text\":\"Hello, world!\"}\n\n{\"text\":\"12345 6789\"}");
  EXPECT_EQ(plain.error, "");
  EXPECT_EQ(plain.output, "{\"ids\":[19923,14,2058,3]}\n{\"ids\":[6895,1883,223,27183,27]}\n");
  EXPECT_EQ(tokenize(plain.output, true).output,
            "{\"text\":\"Hello, world!\"}\n{\"text\":\"12345 6789\"}\n");
}

TEST(TokenizeCommand, ReadsControlSpellingsOnlyIfCompatible) {
  const std::string line = "{\"text\":\"</think>\"}";
  EXPECT_EQ(tokenize(line, false, true).output, "{\"ids\":[128822]}\n");
  EXPECT_NE(tokenize(line).output, "{\"ids\":[128822]}\n");
}

TEST(TokenizeCommand, NamesTheBadLineAndKeepsWhatCameBefore) {
  const std::string good = "{\"text\":\"Hello\"}\n";
  for (const std::string& bad : std::initializer_list<std::string>{
           "{", "[]", "{\"text\":5}", "{\"ids\":[1]}", "\"\\ud83d\"", "null"}) {
    const Outcome outcome = tokenize(good + bad + "\n" + good);
    EXPECT_EQ(outcome.output, "{\"ids\":[19923]}\n") << bad;
    EXPECT_NE(outcome.error.find("line 2"), std::string::npos) << outcome.error;
  }
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_NE(tokenize(deep).error.find("line 1"), std::string::npos);
}

TEST(TokenizeCommand, RefusesIdsOutsideTheVocabulary) {
  for (const std::string& id : std::initializer_list<std::string>{
           "-1", "129280", "18446744073709551615", "1.0", "\"1\"", "null", "[]"}) {
    const Outcome outcome = tokenize("{\"ids\":[0," + id + "]}", true);
    EXPECT_NE(outcome.error.find("line 1: ids[1]"), std::string::npos) << outcome.error;
  }
}

TEST(TokenizeCommand, ShowsBytesThatAreNoTextAsReplacementCharacters) {
  EXPECT_EQ(tokenize("{\"ids\":[225]}", true).output, "{\"text\":\"\uFFFD\"}\n");
}

TEST(TokenizeCommand, NamesAMissingModel) {
  EXPECT_NE(tokenize("", false, false, "/nonexistent").error.find("tokenizer.json"),
            std::string::npos);
}

}  // namespace
}  // namespace cachalot
