// A server that may fetch pictures from this machine, which no flag allows: so it is put together
// here, with the built-in model.
#include <gtest/gtest.h>

#include <fstream>

#include "fetch/scripted_server.h"
#include "http_client.h"
#include "server/api_server.h"
#include "server/model_service.h"
#include "test_engine.h"
#include "vision/data_url.h"

namespace cachalot {
namespace {

using namespace std::chrono_literals;
using test::HttpClient;
using test::HttpResponse;
using test::ScriptedConnection;
using test::ScriptedServer;

class ServeRemotePicturesTest : public testing::Test {
 protected:
  ServeRemotePicturesTest()
      : pictures_([this](const std::string& path, ScriptedConnection& connection) {
          ++asked_;
          if (path == "/never") {
            given_up_ = connection.closed_within(5000);
          } else {
            const auto bytes = *decode_data_url(location(), 1 << 20);
            connection.send(test::http_response({bytes.begin(), bytes.end()}));
          }
        }) {
    std::ifstream file(test::nano_path() / "examples.jsonl");
    for (std::string line; std::getline(file, line);) {
      example_ = *parse_json(line);
      if (*example_.find("family")->string() == "image" && !*example_.find("thinking")->boolean())
        break;
    }
  }
  ~ServeRemotePicturesTest() override { server_.reset(); }

  void SetUp() override {
    const auto hosts = HostList::parse({"127.0.0.1:" + std::to_string(pictures_.port())});
    const auto fetcher = Fetcher::make(*hosts, {}, [](const sockaddr&) { return true; });
    auto engine = test::open_engine(test::nano_path(), {.max_sequences = 2, .max_context = 512});
    ModelServiceOptions options;
    options.defaults.model_names = {"nano"};
    options.end_tokens = {static_cast<int32_t>(engine->config().eos_token_id)};
    auto reader = std::make_shared<PictureReader>(test::open_checkpoint(test::nano_path()),
                                                  PictureOptions{.fetcher = *fetcher});
    service_ = std::make_unique<ModelService>(*Tokenizer::load(test::nano_path()),
                                              std::move(engine), std::move(reader), options);
    ApiServerOptions api;
    api.http.port = 0;
    server_ = std::move(*ApiServer::start(std::move(api)));
    server_->set_service(service_.get());
  }

  const Json& part(size_t index) const {
    const Json& message = example_.find("messages")->array()->front();
    return (*message.find("content")->array())[index];
  }
  std::string location() const { return *part(0).find("image_url")->find("url")->string(); }
  std::string question() const { return part(1).find("text")->dump(); }
  bool wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(10ms);
    return condition();
  }
  // Each interface's request about a picture.
  std::vector<std::pair<std::string, std::string>> requests(const std::string& url) const {
    const std::string start = R"({"temperature": 0, "max_tokens": 40, "thinking": {"type":
        "disabled"}, "reasoning": {"effort": "none"}, )";
    const std::string chat =
        start + R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url":
        {"url": ")" +
        url + R"("}}, {"type": "text", "text": )" + question() + "}]}]}";
    const std::string messages =
        start + R"("messages": [{"role": "user", "content": [{"type": "image", "source": {"type":
        "url", "url": ")" +
        url + R"("}}, {"type": "text", "text": )" + question() + "}]}]}";
    const std::string responses =
        R"({"temperature": 0, "max_output_tokens": 40, "reasoning": {"effort": "none"}, "input":
        [{"role": "user", "content": [{"type": "input_image", "image_url": ")" +
        url + R"("}, {"type": "input_text", "text": )" + question() + "}]}]}";
    return {
        {"/v1/chat/completions", chat}, {"/v1/messages", messages}, {"/v1/responses", responses}};
  }

  Json example_;
  std::atomic<int> asked_{0};
  std::atomic<bool> given_up_{false};
  ScriptedServer pictures_;
  std::unique_ptr<ModelService> service_;
  std::unique_ptr<ApiServer> server_;
};

TEST_F(ServeRemotePicturesTest, AnswersAboutAPictureFromElsewhere) {
  for (const auto& [path, body] : requests(pictures_.url("/shape.png"))) {
    const HttpResponse response = HttpClient(server_->port()).request("POST", path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.body.find(*example_.find("completion")->string()), std::string::npos)
        << response.body;
  }
  EXPECT_EQ(asked_, 3);
}

TEST_F(ServeRemotePicturesTest, FetchesNoLongerForAClientThatHasGone) {
  auto all = requests(pictures_.url("/never"));
  all.emplace_back("/v1/messages/count_tokens", all[1].second);
  all.emplace_back("/v1/responses/input_tokens", all[2].second);
  for (const auto& [path, body] : all) {
    given_up_ = false;
    const int before = asked_;
    HttpClient client(server_->port());
    client.send_request("POST", path, body);
    ASSERT_TRUE(wait_for([&] { return asked_ > before; })) << path;
    client.close();
    EXPECT_TRUE(wait_for([&] { return given_up_.load(); })) << path;
  }
}

}  // namespace
}  // namespace cachalot
