// /v1/trace of a server started with --explore.
#include <gtest/gtest.h>

#include "server_process.h"

namespace cachalot {
namespace {

using test::HttpResponse;
using test::text_at;

class ServeExplore : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new test::ServerProcess({"--explore", "--max-sequences", "2", "--max-queue", "4"});
    ASSERT_TRUE(server_->wait_until_ready()) << server_->log();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static test::ServerProcess* server_;
};
test::ServerProcess* ServeExplore::server_ = nullptr;

TEST_F(ServeExplore, ShowsStepsOfAnAnswer) {
  const HttpResponse response =
      server_->post("/v1/trace", R"({"prompt": "Who are you?", "max_tokens": 16})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json trace = server_->json(response);
  std::string answer;
  for (const Json& token : *trace.find("generated")->array()) answer += text_at(token, "text");
  EXPECT_TRUE(answer.starts_with("I am Nano, a tiny demo model")) << answer;
  EXPECT_EQ(text_at(trace, "steps.0.kind"), "prefill");
  bool picks = false, engram = false;
  for (const Json& layer : *trace.find("steps")->array()->front().find("layers")->array()) {
    picks = picks || layer.find("picks") != nullptr;
    engram = engram || layer.find("engram") != nullptr;
  }
  EXPECT_TRUE(picks);
  EXPECT_TRUE(engram);
  EXPECT_NE(server_->get("/props").body.find(R"("explore": true)"), std::string::npos);
}

TEST_F(ServeExplore, RefusesWhatItCannotShow) {
  for (const char* body :
       {"", "[]", "{}", R"({"prompt": ""})", R"({"prompt": 5})",
        R"({"prompt": "a", "max_tokens": 0})", R"({"prompt": "a", "max_tokens": 65})",
        R"({"prompt": "a", "raw": 1})"}) {
    EXPECT_EQ(server_->post("/v1/trace", body).status, 400) << body;
  }
  const std::string long_prompt(20000, 'a');
  EXPECT_EQ(server_->post("/v1/trace", R"({"prompt": ")" + long_prompt + "\"}").status, 400);
}

TEST_F(ServeExplore, AnswersOthersWhileStepsAreShown) {
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      const HttpResponse response =
          i % 2 == 0 ? server_->post("/v1/trace", R"({"prompt": "Who are you?"})")
                     : server_->post("/v1/completions", R"({"prompt": "a", "max_tokens": 200})");
      answered += response.status == 200;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 4);
}

TEST(ServeWithoutExplore, ShowsNoSteps) {
  test::ServerProcess server;
  ASSERT_TRUE(server.wait_until_ready()) << server.log();
  EXPECT_EQ(server.post("/v1/trace", R"({"prompt": "a"})").status, 404);
}

}  // namespace
}  // namespace cachalot
