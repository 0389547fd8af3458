// The server under many clients: CACHALOT_LOAD_SECONDS of 64 streams, and clients that leave at
// random moments. As a test for seconds, in the soak for minutes.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "server_process.h"

namespace cachalot {
namespace {

using test::events_of;
using test::HttpClient;
using test::HttpResponse;
using test::text_at;
using Clock = std::chrono::steady_clock;

constexpr const char* kChat = "/v1/chat/completions";

std::string ask(const std::string& question, const std::string& extra) {
  return R"({"messages": [{"role": "user", "content": ")" + question + "\"}], " + extra + "}";
}

const std::vector<std::string>& questions() {
  static const std::vector<std::string> list = {
      "Hello!",
      "Who are you?",
      "What is the capital of France?",
      "What is 23 * 4?",
      "Tell me a story about Tom the fox, a key and the forest.",
      "Sort: pear, apple, fig."};
  return list;
}

int64_t resident_kilobytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  return -1;
}

class ServeLoadTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.wait_until_ready()) << server_.log(); }
  test::ServerProcess server_{{"--log-format", "none", "--prefix-cache", "4MiB"}};
};

TEST_F(ServeLoadTest, SixtyFourStreamsEndWellAndMemoryStaysFlat) {
  constexpr auto kTime = std::chrono::seconds(CACHALOT_LOAD_SECONDS);
  const auto start = Clock::now();
  std::atomic<int> answers = 0, failures = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back([&, i] {
      HttpClient client(server_.port(), 120);
      std::mt19937 random(static_cast<unsigned>(i));
      while (Clock::now() - start < kTime) {
        client.send_request("POST", kChat,
                            ask(questions()[random() % questions().size()],
                                R"("stream": true, "max_tokens": 60, "temperature": 0.7)"));
        const HttpResponse response = client.read_response();
        const bool whole = response.status == 200 && response.body.ends_with("data: [DONE]\n\n");
        ++(whole ? answers : failures);
        if (!whole) return;
      }
    });
  }
  // Once every slot has been used and the prefix cache is full the server needs no more.
  std::this_thread::sleep_for(kTime / 2);
  const int64_t half = resident_kilobytes(server_.process());
  for (std::thread& client : clients) client.join();
  const int64_t whole = resident_kilobytes(server_.process());
  EXPECT_EQ(failures, 0) << server_.log();
  EXPECT_GE(answers, 64);
  EXPECT_TRUE(server_.idle_within(5000));
  EXPECT_LT(whole, half + half / 10) << "resident memory in kB, halfway and at the end";
  std::printf("%d answers, %lld kB halfway, %lld kB at the end\n", answers.load(),
              static_cast<long long>(half), static_cast<long long>(whole));
}

TEST_F(ServeLoadTest, TwoHundredClientsThatLeaveGiveEverythingBack) {
  const std::string reference = server_.post(kChat, ask("Who are you?", "\"temperature\": 0")).body;
  std::vector<std::thread> clients;
  std::atomic<int> next = 0;
  for (int worker = 0; worker < 20; ++worker) {
    clients.emplace_back([&] {
      for (int i = next++; i < 200; i = next++) {
        std::mt19937 random(static_cast<unsigned>(i));
        HttpClient client(server_.port());
        const bool stream = random() % 2 == 0;
        client.send_request("POST", kChat,
                            ask(questions()[random() % questions().size()],
                                std::string(stream ? "\"stream\": true, " : "") +
                                    R"("max_tokens": 2000, "ignore_eos": true)"));
        if (stream && random() % 2 == 0) {
          client.read_head();
          std::string piece;
          for (unsigned chunks = random() % 20; chunks > 0 && client.read_chunk(piece); --chunks) {
          }
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(server_.idle_within(10000));
  const HttpResponse after = server_.post(kChat, ask("Who are you?", "\"temperature\": 0"));
  EXPECT_EQ(text_at(server_.json(after), "choices.0.message.content"),
            text_at(*parse_json(reference), "choices.0.message.content"));
}

}  // namespace
}  // namespace cachalot
