#include "tokenize_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>

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

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What the engine's tests read instead of tokenizers; the release's is the specification's own.
TEST(TokenizeCommand, WritesTheTokenClassesOfAModel) {
  const std::filesystem::path data = CACHALOT_SOURCE_DIR "/tests/data";
  const std::pair<std::filesystem::path, std::filesystem::path> models[] = {
      {CACHALOT_SOURCE_DIR "/models/nano", data / "token_classes/nano.i32le"},
      {data / "tiny-a", data / "token_classes/tiny-a.i32le"},
      {data / "tiny-b", data / "token_classes/tiny-b.i32le"},
      {data / "tokenizers/v41", data / "engram_token_map_v41.i32le"}};
  const std::string written = testing::TempDir() + "token_classes_of_a_model";
  for (const auto& [model, expected] : models) {
    const Status status = write_token_map({.model = model.string(), .map = written});
    ASSERT_TRUE(status) << model << ": " << status.error().message;
    EXPECT_EQ(bytes_of(written), bytes_of(expected)) << model;
  }
}

}  // namespace
}  // namespace cachalot
