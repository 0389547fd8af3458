// Pictures that lie on another server: fetched, read and laid out as if they had come with the
// request.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "chat/render.h"
#include "fetch/scripted_server.h"
#include "pictures/picture_reader.h"
#include "vision/data_url.h"

namespace cachalot {
namespace {

using test::http_response;
using test::ScriptedConnection;
using test::ScriptedServer;

std::filesystem::path model_path(const char* model) {
  return std::filesystem::path(CACHALOT_SOURCE_DIR) / model;
}

// The data URL of the first picture among the built-in model's examples.
std::string example_picture() {
  std::ifstream file(model_path("models/nano") / "examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = *parse_json(line);
    if (*json.find("family")->string() == "image")
      return render(*parse_conversation(json))->images.front().location;
  }
  return {};
}

class RemotePictures : public testing::Test {
 protected:
  RemotePictures()
      : data_url_(example_picture()),
        server_([this](const std::string& path, ScriptedConnection& connection) {
          const auto bytes = *decode_data_url(data_url_, 1 << 20);
          connection.send(path == "/text" ? http_response("no picture")
                                          : http_response({bytes.begin(), bytes.end()}));
        }) {}

  // A reader that may ask this machine, but only the port of the server.
  PictureReader reader(const char* model = "models/nano") {
    const auto hosts = HostList::parse({"127.0.0.1:" + std::to_string(server_.port())});
    const auto fetcher = Fetcher::make(*hosts, {}, [](const sockaddr&) { return true; });
    auto checkpoint = Checkpoint::open(model_path(model));
    return PictureReader(std::make_shared<const Checkpoint>(std::move(*checkpoint)),
                         {.fetcher = *fetcher});
  }
  int32_t placeholder() const {
    return static_cast<int32_t>(
        Checkpoint::open(model_path("models/nano"))->config().image_token_id);
  }

  std::string data_url_;
  ScriptedServer server_;
};

TEST_F(RemotePictures, AreTheSameAsThoseInTheRequest) {
  PictureReader reader = this->reader();
  const std::vector<int32_t> ids = {277, placeholder(), 457, placeholder()};
  const std::vector<ImageRecord> local = {{data_url_, "a"}, {data_url_, "b"}};
  const std::vector<ImageRecord> remote = {{server_.url("/x.png"), "a"},
                                           {server_.url("/x.png"), "b"}};
  const auto expected = reader.expand(ids, local);
  const auto found = reader.expand(ids, remote);
  ASSERT_TRUE(expected && found) << found.error().message;
  EXPECT_EQ(found->ids, expected->ids);
  EXPECT_EQ(found->images->key, expected->images->key);
  EXPECT_EQ(server_.connections(), 1);  // one place, fetched once
  EXPECT_EQ(*reader.count(ids, remote), std::ssize(expected->ids));
}

TEST_F(RemotePictures, ThatCannotBeHadAreNamed) {
  PictureReader reader = this->reader();
  const std::vector<int32_t> ids = {placeholder(), placeholder()};
  const auto error = [&](const std::string& location) {
    const std::vector<ImageRecord> pictures = {{data_url_, "first"}, {location, "second"}};
    return reader.expand(ids, pictures).error().message;
  };
  EXPECT_TRUE(error(server_.url("/text")).starts_with("second: expected JPEG, PNG, WebP or GIF"));
  EXPECT_TRUE(error("HTTPS://example.org/").starts_with("second: example.org:443 is not among"));
  EXPECT_EQ(error("ftp://example.org/"),
            "second: expected a data: URL, http:// or https://, found \"ftp://example.org/\"");
}

TEST_F(RemotePictures, AreNotFetchedForAModelThatCannotSee) {
  PictureReader reader = this->reader("tests/data/tiny-b");
  const std::vector<ImageRecord> pictures = {{server_.url("/x.png"), "a"}};
  EXPECT_EQ(reader.expand({}, pictures).error().message,
            "a: this model has no vision tower: it cannot see pictures");
  EXPECT_EQ(server_.connections(), 0);
}

TEST_F(RemotePictures, AreNotFetchedForAClientThatHasGone) {
  PictureReader reader = this->reader();
  const std::vector<int32_t> ids = {placeholder()};
  const std::vector<ImageRecord> pictures = {{server_.url("/x.png"), "a"}};
  EXPECT_EQ(reader.expand(ids, pictures, [] { return true; }).error().message,
            "a: the client has gone");
}

}  // namespace
}  // namespace cachalot
