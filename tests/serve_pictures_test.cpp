// Pictures sent to the server: nano's own picture examples, through every interface.
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "fetch/scripted_server.h"
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
  std::ifstream file(CACHALOT_SOURCE_DIR "/models/nano/examples.jsonl");
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

// A tool may answer with a picture: both interfaces make the same prompt of it.
TEST_F(ServePictures, MayBeWhatAToolSays) {
  const Json example = picture_examples().front();
  const std::string url = text_at(example, "messages.0.content.0.image_url.url");
  const std::string data = url.substr(url.find(',') + 1);
  const std::string settings = R"({"temperature": 0, "max_tokens": 12, "thinking": {"type":
      "disabled"}, "messages": [{"role": "user", "content": "Take a picture."}, )";
  const std::string openai =
      settings + R"({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type":
      "function", "function": {"name": "camera", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": [
       {"type": "image_url", "image_url": {"url": ")" +
      url + R"("}}]}]})";
  const std::string anthropic =
      settings + R"({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name":
      "camera", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result",
      "tool_use_id": "c1", "content": [{"type": "image", "source": {"type": "base64",
      "media_type": "image/png", "data": ")" +
      data + R"("}}]}]}]})";
  const Json chat = server_.json(server_.post(kChat, openai));
  const Json messages = server_.json(server_.post("/v1/messages", anthropic));
  EXPECT_EQ(text_at(chat, "choices.0.message.content"), text_at(messages, "content.0.text"));
  const int64_t tokens = number_at(chat, "usage.prompt_tokens");
  EXPECT_EQ(tokens, number_at(messages, "usage.input_tokens") +
                        number_at(messages, "usage.cache_read_input_tokens"));
  // The same without the picture, to know that it is there.
  std::string blind = openai;
  const size_t part = blind.find(R"({"type": "image_url")");
  blind.replace(part, blind.rfind("]}]}") - part, R"({"type": "text", "text": ""})");
  const Json without = server_.json(server_.post(kChat, blind));
  constexpr int64_t kSpan = 1 + 2 * (2 + 1) + 1;  // start, two rows of two and a newline, end
  EXPECT_EQ(tokens, number_at(without, "usage.prompt_tokens") + kSpan);
}

TEST(ServeRemotePictures, AreFetchedFromListedHostsAndNeverFromThisMachine) {
  test::ScriptedServer private_server([](const std::string&, test::ScriptedConnection& connection) {
    connection.send(test::http_response("secret"));
  });
  const std::string port = std::to_string(private_server.port());
  test::ServerProcess server(
      {"--allow-remote-images", "localhost:" + port + ",*.example.org,[::1]:" + port});
  const bool ready = server.wait_until_ready();
  if (server.log().find("built without libcurl") != std::string::npos)
    GTEST_SKIP() << "the static build fetches nothing";
  ASSERT_TRUE(ready) << server.log();
  const auto refused = [&](const std::string& path, const std::string& body,
                           const std::string& reason) {
    const HttpResponse response = server.post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_NE(response.body.find(reason), std::string::npos) << response.body;
  };
  const std::string listed = private_server.url("/a.png", "localhost");
  const std::string reason = "localhost: its address is not a public one";
  refused(kChat, question_about(listed), "messages[0].content[0]");
  refused(kChat, question_about(listed), reason);
  refused(kChat, question_about(private_server.url("/a.png", "[::1]")), "not a public one");
  refused(kChat, question_about(private_server.url("/a.png")),
          "127.0.0.1:" + port + " is not among the hosts");
  refused(kChat, question_about("https://example.org/"), "example.org:443 is not among the hosts");
  refused(kChat, question_about("file:///etc/passwd"), "expected a data: URL, http:// or https://");
  refused("/v1/responses",
          R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ")" +
              listed + R"("}]}]})",
          reason);
  const std::string anthropic =
      R"({"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image", "source":
          {"type": "url", "url": ")" +
      listed + R"("}}]}]})";
  refused("/v1/messages", anthropic, reason);
  refused("/v1/messages/count_tokens", anthropic, reason);
  EXPECT_EQ(private_server.connections(), 0);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(ServeRemotePictures, NeedHostsThatAreHosts) {
  test::ServerProcess server({"--allow-remote-images", "example.org,https://example.org"});
  EXPECT_FALSE(server.wait_until_ready());
  EXPECT_NE(server.log().find("--allow-remote-images: expected a host"), std::string::npos)
      << server.log();
}

}  // namespace
}  // namespace cachalot
