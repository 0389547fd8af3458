// The answer to a seed is the same alone, under load, from a cold cache, a warm one and one on disk
// after a restart, and as the first of several.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "program_test.h"
#include "server_process.h"

namespace cachalot {
namespace {

using test::at;
using test::HttpResponse;
using test::number_at;
using test::ServerProcess;
using test::text_at;

constexpr const char* kChat = "/v1/chat/completions";

std::string ask(const std::string& extra) {
  return R"({"temperature": 1.3, "seed": 11, "max_tokens": 48, "messages": [
    {"role": "system", "content": "You are a helpful assistant who answers in short sentences."},
    {"role": "user", "content": "Tell me a story about Tom the fox, a key and the forest."}])" +
         extra + "}";
}

class ServeInvarianceTest : public test::ProgramTest {
 protected:
  struct Reply {
    std::string said;
    int64_t cached = 0;
  };
  Reply answer(ServerProcess& server, const std::string& extra = "") {
    const HttpResponse response = server.post(kChat, ask(extra));
    EXPECT_EQ(response.status, 200) << response.body;
    const Json json = server.json(response);
    return {text_at(json, "choices.0.message.reasoning_content") + "|" +
                text_at(json, "choices.0.message.content"),
            number_at(json, "usage.prompt_cache_hit_tokens")};
  }
};

TEST_F(ServeInvarianceTest, TheSameAnswerHoweverItIsMade) {
  std::string expected;
  {
    ServerProcess plain({"--prefix-cache", "0", "--drafts", "off", "--max-sequences", "1"});
    ASSERT_TRUE(plain.wait_until_ready()) << plain.log();
    const Reply reply = answer(plain);
    expected = reply.said;
    EXPECT_EQ(reply.cached, 0);
  }
  const std::string folder = (folder_ / "cache").string();
  {
    ServerProcess server({"--cache-dir", folder});
    ASSERT_TRUE(server.wait_until_ready()) << server.log();
    const Reply cold = answer(server), warm = answer(server);
    EXPECT_EQ(cold.said, expected);
    EXPECT_EQ(warm.said, expected);
    EXPECT_EQ(cold.cached, 0);
    EXPECT_GT(warm.cached, 0);
    EXPECT_EQ(answer(server, R"(, "n": 3)").said, expected);
    EXPECT_EQ(answer(server, R"(, "cache_prompt": false)").said, expected);
    std::atomic<bool> stop = false;
    std::vector<std::thread> others;
    for (int i = 0; i < 12; ++i) {
      others.emplace_back([&, i] {
        while (!stop)
          server.post(kChat,
                      R"({"max_tokens": 30, "messages": [{"role": "user", "content": "What is )" +
                          std::to_string(i) + R"( + 7?"}]})");
      });
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(server).said, expected) << "under load";
    stop = true;
    for (std::thread& other : others) other.join();
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
  }
  ServerProcess restarted({"--cache-dir", folder});
  ASSERT_TRUE(restarted.wait_until_ready()) << restarted.log();
  const Reply from_disk = answer(restarted);
  EXPECT_EQ(from_disk.said, expected);
  EXPECT_GT(from_disk.cached, 0) << restarted.log();
}

}  // namespace
}  // namespace cachalot
