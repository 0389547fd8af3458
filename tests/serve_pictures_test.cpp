// Pictures sent to the server: nano's own picture examples, through every interface.
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "server_process.h"

namespace cachalot {
namespace {

using test::HttpResponse;
using test::number_at;
using test::text_at;

constexpr const char* kChat = "/v1/chat/completions";

// Of the examples with a picture: an independent implementation's greedy answers.
std::vector<Json> picture_examples() {
  std::vector<Json> examples;
  std::ifstream file(std::string(CACHALOT_SOURCE_DIR) + "/models/nano/examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto example = parse_json(line);
    if (text_at(*example, "family") == "image") examples.push_back(*example);
  }
  return examples;
}

std::string body_of(const Json& messages, bool thinking) {
  return std::string(R"({"temperature": 0, "max_tokens": 60, "thinking": {"type": ")") +
         (thinking ? "enabled" : "disabled") + R"("}, "messages": )" + messages.dump() + "}";
}

// As the model wrote it.
std::string completion_of(const Json& answer) {
  const std::string reasoning = text_at(answer, "choices.0.message.reasoning_content");
  return (reasoning == "<null>" ? "" : reasoning + "</think>") +
         text_at(answer, "choices.0.message.content");
}

std::string question_about(const std::string& url) {
  return R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ")" +
         url + R"("}}, {"type": "text", "text": "What is this?"}]}], "max_tokens": 4})";
}

class ServePictures : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.wait_until_ready()) << server_.log(); }
  test::ServerProcess server_;
};

TEST_F(ServePictures, AreAnsweredAsTheExamplesSayColdAndCached) {
  const std::vector<Json> examples = picture_examples();
  ASSERT_GE(examples.size(), 5U);
  for (const int round : {0, 1}) {
    for (const Json& example : examples) {
      SCOPED_TRACE(text_at(example, "id"));
      const bool thinking = *example.find("thinking")->boolean();
      const Json answer =
          server_.json(server_.post(kChat, body_of(*example.find("messages"), thinking)));
      EXPECT_EQ(completion_of(answer), text_at(example, "completion"));
      const int64_t tokens = number_at(answer, "usage.prompt_tokens");
      EXPECT_EQ(tokens, number_at(example, "prompt_tokens"));
      const int64_t cached = number_at(answer, "usage.prompt_cache_hit_tokens");
      if (round == 1) {
        EXPECT_EQ(cached, tokens - 1);
      } else {
        // Two pictures have nothing in common: the prompt before them alone is shared.
        EXPECT_LT(cached, tokens / 2);
      }
    }
  }
}

TEST_F(ServePictures, AreAnsweredOverAnthropicsInterface) {
  const Json example = picture_examples().front();
  const std::string url = text_at(example, "messages.0.content.0.image_url.url");
  const std::string data = url.substr(url.find(',') + 1);
  const std::string message =
      R"([{"role": "user", "content": [{"type": "image", "source": {"type": "base64",
          "media_type": "image/png", "data": ")" +
      data + R"("}}, )" +
      example.find("messages")->array()->at(0).find("content")->array()->at(1).dump() + "]}]";
  const Json messages = *parse_json(message);
  const Json answer = server_.json(server_.post("/v1/messages", body_of(messages, false)));
  EXPECT_EQ(text_at(answer, "content.0.text"), text_at(example, "completion"));
  const Json count =
      server_.json(server_.post("/v1/messages/count_tokens", body_of(messages, false)));
  EXPECT_EQ(number_at(count, "input_tokens"), number_at(example, "prompt_tokens"));
}

TEST_F(ServePictures, ThatCannotBeReadAreRefusedByTheirPlace) {
  for (const char* url :
       {"data:image/png;base64,SGVsbG8=", "data:image/png;base64,", "data:text/plain,hi",
        "/etc/hostname", "file:///etc/hostname", "http://127.0.0.1/a.png", ""}) {
    const HttpResponse response = server_.post(kChat, question_about(url));
    EXPECT_EQ(response.status, 400) << url << response.body;
    EXPECT_NE(response.body.find("messages[0].content[0]"), std::string::npos) << response.body;
  }
  const HttpResponse after = server_.post(
      kChat, R"({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 2})");
  EXPECT_EQ(after.status, 200);
}

}  // namespace
}  // namespace cachalot
