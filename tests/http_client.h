// A small HTTP client for tests: raw bytes out, responses in, one connection at a time.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cachalot::test {

struct HttpResponse {
  int status = 0;  // 0: the connection ended before a whole response
  std::string reason;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

// Everything waits at most `seconds`.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int seconds = 30) : seconds_(seconds) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  // False: the server has closed the connection.
  bool send_raw(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  bool send_request(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view headers = {}) {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
    text += headers;
    if (!body.empty() || method == "POST")
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    return send_raw(text + "\r\n" + std::string(body));
  }

  HttpResponse request(std::string_view method, std::string_view path, std::string_view body = {},
                       std::string_view headers = {}) {
    send_request(method, path, body, headers);
    return read_response(method == "HEAD");
  }

  HttpResponse read_response(bool head_only = false) {
    HttpResponse response = read_head();
    if (response.status == 0 || head_only || response.status == 204) return response;
    if (response.header("transfer-encoding") == "chunked") {
      std::string piece;
      while (read_chunk(piece)) response.body += piece;
      if (broken_) response.status = 0;
      return response;
    }
    const std::string length = response.header("content-length");
    const size_t bytes = length.empty() ? SIZE_MAX : std::strtoull(length.c_str(), nullptr, 10);
    while (buffer_.size() < bytes && fill()) {
    }
    if (bytes != SIZE_MAX && buffer_.size() < bytes) response.status = 0;
    response.body = take(std::min(bytes, buffer_.size()));
    return response;
  }

  // For streams: the header, then one chunk after the other. False: the last one has come, or the
  // connection broke.
  HttpResponse read_head() {
    HttpResponse response;
    std::string line;
    if (!read_line(line) || line.size() < 12) return response;
    const int status = std::atoi(line.c_str() + 9);
    if (line.size() > 13) response.reason = line.substr(13);
    while (read_line(line)) {
      if (line.empty()) {
        response.status = status;
        return response;
      }
      const size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      response.headers.emplace_back(name, colon == line.npos ? "" : line.substr(colon + 2));
    }
    return response;
  }
  bool read_chunk(std::string& data) {
    std::string line;
    broken_ = true;
    if (!read_line(line)) return false;
    const size_t size = std::strtoull(line.c_str(), nullptr, 16);
    while (buffer_.size() < size + 2)
      if (!fill()) return false;
    data = take(size);
    take(2);
    broken_ = false;
    return size > 0;
  }

  // Whether the server closes the connection within `milliseconds`.
  bool closed_within(int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      pollfd wait{socket_, POLLIN, 0};
      if (::poll(&wait, 1, 50) <= 0) continue;
      char data[4096];
      if (::recv(socket_, data, sizeof data, 0) <= 0) return true;
    }
    return false;
  }

 private:
  int socket_ = -1;
  int seconds_;
  bool connected_ = false, broken_ = false;
  std::string buffer_;

  bool fill() {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, seconds_ * 1000) <= 0) return false;
    char data[16384];
    const ssize_t count = ::recv(socket_, data, sizeof data, 0);
    if (count <= 0) return false;
    buffer_.append(data, static_cast<size_t>(count));
    return true;
  }

  std::string take(size_t bytes) {
    std::string result = buffer_.substr(0, bytes);
    buffer_.erase(0, bytes);
    return result;
  }

  bool read_line(std::string& line) {
    size_t end = 0;
    while ((end = buffer_.find("\r\n")) == buffer_.npos)
      if (!fill()) return false;
    line = take(end);
    take(2);
    return true;
  }
};

}  // namespace cachalot::test
