#include "engine/expert_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/mapped_file.h"
#include "checkpoint/test_folder.h"

namespace cachalot {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.n_layers = 2;
  config.n_routed_experts = 4;
  config.n_activated_experts = 2;
  config.n_mtp_layers = 1;
  config.dspark_n_routed_experts = 3;
  config.dspark_n_activated_experts = 1;
  return config;
}

const ExpertProfile kProfile = {{{5, 0, 9, 1}, {2, 2, 0, 11}, {0, 7, 0}}};

std::string message_of(const Result<ExpertProfile>& profile) {
  return profile ? "" : profile.error().message;
}

TEST(ExpertProfile, ComesBackAsItWasWritten) {
  const ModelConfig config = small_model();
  const TestFolder folder;
  const auto path = folder.path() / "hot.json";
  ASSERT_TRUE(write_expert_profile(path, kProfile, config));
  ASSERT_TRUE(write_expert_profile(path, kProfile, config));
  const auto read = read_expert_profile(path, config);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tokens, kProfile.tokens);
  EXPECT_FALSE(read_expert_profile(folder.path() / "none.json", config));
  EXPECT_FALSE(write_expert_profile(folder.path() / "no/such/folder.json", kProfile, config));
}

TEST(ExpertProfile, ListsTheHottestFirst) {
  const auto hot = hottest_first(kProfile, small_model());
  std::vector<std::pair<size_t, size_t>> order;
  for (const auto& entry : hot) order.emplace_back(entry.layer, entry.expert);
  EXPECT_EQ(order, (std::vector<std::pair<size_t, size_t>>{
                       {1, 3}, {0, 2}, {2, 1}, {0, 0}, {1, 0}, {1, 1}, {0, 3}}));
  EXPECT_DOUBLE_EQ(hot[1].share, 1);
  EXPECT_DOUBLE_EQ(hot[3].share, 5 / 7.5);
}

TEST(ExpertProfile, SaysWhatIsWrong) {
  const ModelConfig config = small_model();
  const std::string good = expert_profile_text(kProfile, config);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return message_of(parse_expert_profile(text.replace(at, from.size(), to), config));
  };
  EXPECT_EQ(changed("5", "5"), "");
  EXPECT_NE(changed("profile\":1", "profile\":2").find("--expert-profile-out"), std::string::npos);
  EXPECT_NE(changed("layers.1", "layers.7").find("no such layer"), std::string::npos);
  EXPECT_NE(changed("[0,7,0]", "[0,7]").find("mtp.0: expected 3 counts"), std::string::npos);
  EXPECT_NE(changed("[0,7,0]", "\"x\"").find("found string"), std::string::npos);
  EXPECT_NE(changed("11", "-1").find("layers.1: expected counts from 0"), std::string::npos);
  EXPECT_NE(changed("11", "1.5").find("found 1.5 for expert 3"), std::string::npos);
  EXPECT_NE(changed("11", "99999999999999999999").find("layers.1"), std::string::npos);
  EXPECT_NE(message_of(parse_expert_profile("[]", config)).find("expected"), std::string::npos);
  EXPECT_NE(message_of(parse_expert_profile("{", config)).find("JSON"), std::string::npos);
  EXPECT_NE(message_of(parse_expert_profile("{\"cachalot_expert_profile\":1}", config))
                .find("tokens: expected an object"),
            std::string::npos);
  EXPECT_NE(
      message_of(parse_expert_profile(
                     "{\"cachalot_expert_profile\":1,\"tokens\":{\"layers.0\":[0,0,0,0]}}", config))
          .find("layers.1: expected this layer"),
      std::string::npos);
}

TEST(ExpertProfile, DamagedOnesAreReadOrRefused) {
  const ModelConfig config = small_model();
  const std::string good = expert_profile_text(kProfile, config);
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % text.size(), length = 1 + random() % 8;
      if (random() % 2 == 0) {
        text[at] = "0123456789-.e\"{}[],:x\xff"[random() % 22];
      } else if (random() % 2 == 0) {
        text.insert(at, text.substr(at, length));
      } else {
        text.erase(at, length);
      }
    }
    const auto profile = parse_expert_profile(text, config);
    if (!profile) {
      ++refused;
      ASSERT_FALSE(profile.error().message.empty());
      continue;
    }
    ASSERT_EQ(profile->tokens.size(), 3u);
    (void)hottest_first(*profile, config);
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace cachalot
