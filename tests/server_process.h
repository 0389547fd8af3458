// `cachalot serve` with the built-in model on a free port, for as long as this lives.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "chat/json_value.h"
#include "http_client.h"

extern char** environ;

namespace cachalot::test {

class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> options = {}, std::string model = "models/nano") {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cachalot-serve-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    // One thread, as tests run beside each other.
    std::vector<std::string> words{
        CACHALOT_PROGRAM, "serve", "-m",        CACHALOT_SOURCE_DIR "/" + model,
        "--port",         "0",     "--threads", "1"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = log_path().string();
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (posix_spawn(&process_, CACHALOT_PROGRAM, &actions, nullptr, arguments.data(), environ) != 0)
      process_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~ServerProcess() {
    stop();
    std::filesystem::remove_all(folder_);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::filesystem::path folder() const { return folder_; }
  std::string log() const {
    std::ifstream file(log_path());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // Waits until the model is loaded. False: the program has ended, or time is up.
  bool wait_until_ready() {
    for (int i = 0; i < 6000; ++i) {
      const std::string text = log();
      const size_t at = text.find("listening on http://");
      if (at != text.npos) {
        const size_t end = text.find('\n', at);
        if (end != text.npos)
          port_ = static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':', end) + 1)));
      }
      if (text.find("ready after") != text.npos) return true;
      if (!running()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  uint16_t port() const { return port_; }
  pid_t process() const { return process_; }

  bool running() {
    if (process_ <= 0) return false;
    if (::waitpid(process_, &status_, WNOHANG) != process_) return true;
    process_ = -1;
    return false;
  }
  void signal(int number) {
    if (process_ > 0) ::kill(process_, number);
  }
  // The exit code; -1 for a signal.
  int wait() {
    if (process_ > 0) ::waitpid(process_, &status_, 0);
    process_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }
  int stop() {
    if (process_ <= 0) return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
    signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    signal(SIGINT);
    return wait();
  }

  HttpResponse post(const std::string& path, const std::string& body,
                    const std::string& headers = "") {
    return HttpClient(port_).request("POST", path, body, headers);
  }
  HttpResponse get(const std::string& path, const std::string& headers = "") {
    return HttpClient(port_).request("GET", path, "", headers);
  }
  // The reply's JSON; null if it is none.
  Json json(const HttpResponse& response) {
    const auto parsed = parse_json(response.body);
    return parsed ? *parsed : Json();
  }

  // Requests running and waiting, from /metrics.
  int64_t busy() {
    const std::string text = get("/metrics").body;
    int64_t count = 0;
    for (const char* name : {"\nllamacpp:requests_processing ", "\nllamacpp:requests_deferred "}) {
      const size_t at = text.find(name);
      if (at != text.npos) count += std::atoll(text.c_str() + at + std::string(name).size());
    }
    return count;
  }
  bool idle_within(int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      if (busy() == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  std::filesystem::path log_path() const { return folder_ / "log"; }

  std::filesystem::path folder_;
  pid_t process_ = -1;
  int status_ = 0;
  uint16_t port_ = 0;
};

// The member at "choices.0.message.content"; null if there is none.
inline Json at(const Json& json, std::string_view path) {
  const Json* value = &json;
  while (!path.empty() && value != nullptr) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string key(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (const Json::Array* array = value->array()) {
      const size_t index = std::stoul(key);
      value = index < array->size() ? &(*array)[index] : nullptr;
    } else {
      value = value->find(key);
    }
  }
  return value ? *value : Json();
}
inline std::string text_at(const Json& json, std::string_view path) {
  const Json value = at(json, path);
  return value.string() ? *value.string() : "<" + value.dump() + ">";
}
inline int64_t number_at(const Json& json, std::string_view path) {
  return at(json, path).int64().value_or(INT64_MIN);
}

// The data lines of a stream of events, [DONE] included as the string "[DONE]".
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  for (size_t start = 0; start < body.size();) {
    const size_t end = std::min(body.find("\n\n", start), body.size());
    const std::string event = body.substr(start, end - start);
    start = end + 2;
    const size_t data = event.find("data: ");
    if (data == event.npos) continue;
    const std::string text = event.substr(data + 6);
    if (text == "[DONE]") {
      events.push_back(Json("[DONE]"));
    } else {
      const auto parsed = parse_json(text);
      EXPECT_TRUE(parsed) << text;
      if (parsed) events.push_back(*parsed);
    }
  }
  return events;
}

}  // namespace cachalot::test
