// tokenizer.json files that must be refused, each with an error that says why.
#include <functional>

#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

using nlohmann::json;

std::string nano_text() { return read_file(CACHALOT_SOURCE_DIR "/models/nano/tokenizer.json"); }

// The error for nano's file after `change`; "" if it loads.
std::string error_after(const std::function<void(json&)>& change) {
  json file = json::parse(nano_text());
  change(file);
  const auto result = Tokenizer::parse(file.dump());
  return result ? "" : result.error().message;
}

testing::AssertionResult mentions(const std::string& error, const std::string& words) {
  if (error.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << error << "\" does not mention " << words;
}

TEST(TokenizerLoad, AcceptsMergesAsPairs) {
  EXPECT_EQ(error_after([](json& file) {
              for (json& merge : file["model"]["merges"]) {
                const auto line = merge.get<std::string>();
                const size_t blank = line.find(' ');
                merge = json::array({line.substr(0, blank), line.substr(blank + 1)});
              }
            }),
            "");
}

TEST(TokenizerLoad, RefusesUnknownComponentsByName) {
  const auto with = [](const char* part, json value) {
    return error_after([&](json& file) { file[part] = value; });
  };
  EXPECT_TRUE(mentions(with("normalizer", {{"type", "NFC"}}), "NFC"));
  EXPECT_TRUE(mentions(with("decoder", {{"type", "Metaspace"}}), "Metaspace"));
  EXPECT_TRUE(
      mentions(with("post_processor", {{"type", "TemplateProcessing"}}), "TemplateProcessing"));
  EXPECT_TRUE(mentions(with("pre_tokenizer", {{"type", "Whitespace"}}), "Whitespace"));
  EXPECT_TRUE(mentions(with("pre_tokenizer", nullptr), "null"));
}

TEST(TokenizerLoad, RefusesOtherModels) {
  const auto with = [](const char* option, json value) {
    return error_after([&](json& file) { file["model"][option] = value; });
  };
  EXPECT_TRUE(mentions(with("type", "Unigram"), "Unigram"));
  EXPECT_TRUE(mentions(with("byte_fallback", true), "byte_fallback"));
  EXPECT_TRUE(mentions(with("unk_token", "<unk>"), "unk_token"));
  EXPECT_TRUE(mentions(with("dropout", 0.1), "dropout"));
  EXPECT_TRUE(mentions(with("vocab", json::array()), "vocab"));
  EXPECT_TRUE(mentions(with("merges", "x"), "model.merges: expected a list, found \"x\""));
  EXPECT_TRUE(mentions(with("merges", true), "model.merges: expected a list, found true"));
  EXPECT_TRUE(mentions(with("vocab", true), "model.vocab: expected an object, found true"));
  EXPECT_TRUE(mentions(error_after([](json& file) { file.erase("model"); }), "model"));
}

TEST(TokenizerLoad, RefusesBrokenIds) {
  const auto with = [](const char* name, json id) {
    return error_after([&](json& file) { file["model"]["vocab"][name] = id; });
  };
  EXPECT_TRUE(mentions(with("new", 5), "id 5"));
  EXPECT_TRUE(mentions(with("new", 100000), "id 100000"));
  EXPECT_TRUE(mentions(with("new", -1), "model.vocab"));
  EXPECT_TRUE(mentions(with("new", 1.5), "model.vocab"));
  EXPECT_TRUE(mentions(with("new", "x"), "model.vocab"));
  EXPECT_TRUE(
      mentions(error_after([](json& file) { file["model"]["vocab"].erase("!"); }), "no token"));
  EXPECT_TRUE(
      mentions(error_after([](json& file) { file["added_tokens"].back()["id"] = 7; }), "id 7"));
  EXPECT_TRUE(mentions(
      error_after([](json& file) { file["added_tokens"].push_back(file["added_tokens"][0]); }),
      "listed twice"));
  EXPECT_TRUE(mentions(error_after([](json& file) { file["added_tokens"][0]["lstrip"] = true; }),
                       "lstrip"));
}

TEST(TokenizerLoad, RefusesBrokenMerges) {
  const auto with = [](json merge) {
    return error_after([&](json& file) { file["model"]["merges"].push_back(merge); });
  };
  EXPECT_TRUE(mentions(with("nosuch token"), "model.merges: entry 1752"));
  EXPECT_TRUE(mentions(with("h e"), "already"));
  EXPECT_TRUE(mentions(with("he"), "model.merges"));
  EXPECT_TRUE(mentions(with("a b c"), "model.merges"));
  EXPECT_TRUE(mentions(with(json::array({"a"})), "model.merges"));
  EXPECT_TRUE(mentions(with(3), "model.merges"));
}

TEST(TokenizerLoad, RefusesBrokenJson) {
  const auto error = [](const std::string& text) {
    const auto result = Tokenizer::parse(text);
    return result ? "" : result.error().message;
  };
  EXPECT_TRUE(mentions(error(""), "JSON"));
  EXPECT_TRUE(mentions(error("[]"), "object"));
  EXPECT_TRUE(mentions(error(R"({"a":1,"a":2})"), "twice"));
  EXPECT_TRUE(mentions(error(R"({"model":{"vocab":{},"vocab":{}}})"), "twice"));
  EXPECT_TRUE(mentions(error(std::string(100000, '[')), "nested"));
}

TEST(TokenizerLoad, ChecksTheConfigFile) {
  const std::string tokenizer = nano_text();
  const auto error = [&](const std::string& config) {
    const auto result = Tokenizer::parse(tokenizer, config);
    return result ? "" : result.error().message;
  };
  EXPECT_EQ(error(R"({"bos_token":{"content":"<｜begin▁of▁sentence｜>"},"eos_token":null})"), "");
  EXPECT_TRUE(mentions(error(R"({"bos_token":"<s>"})"), "<s>"));
  EXPECT_TRUE(mentions(error(R"({"add_bos_token":true})"), "add_bos_token"));
  EXPECT_TRUE(mentions(error("{"), "tokenizer_config.json"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_TRUE(mentions(error("{\"bos_token\":" + deep + "}"), "bos_token"));
}

TEST(TokenizerLoad, NamesTheMissingFile) {
  const auto result = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(result);
  EXPECT_TRUE(mentions(result.error().message, "tokenizer.json"));
}

TEST(TokenizerLoad, SurvivesDamagedFiles) {
  const std::string good = nano_text();
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    for (unsigned i = 0; i <= random() % 3; ++i) {
      // Most of the damage near the start, where the structure is.
      const size_t at = random() % (random() % 2 ? 9000 : bad.size());
      if (random() % 3 == 0) {
        bad.erase(at, random() % 40);
      } else {
        bad[at] = "\"{}[],:0a\\ \x80"[random() % 12];
      }
    }
    if (random() % 10 == 0) bad.resize(random() % bad.size());
    if (const auto tokenizer = Tokenizer::parse(bad)) {
      tokenizer->encode("Hello <｜User｜> 12345 \xFF", EncodeMode::compatible);
    }
  }
}

}  // namespace
}  // namespace cachalot
