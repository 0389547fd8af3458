// For tests: a server on this machine's loopback addresses that answers as it is told.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace cachalot::test {

// A connection whose request has been read.
class ScriptedConnection {
 public:
  ScriptedConnection(int socket, const std::atomic<bool>& stopping)
      : socket_(socket), stopping_(stopping) {}

  // False: the client has closed it, or the server ends.
  bool send(std::string_view bytes) {
    while (!bytes.empty() && !stopping_) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return !stopping_;
  }
  // Waits until the client hangs up. False: it did not within the time.
  bool closed_within(int milliseconds) {
    pollfd wait{socket_, POLLIN, 0};
    char byte = 0;
    return ::poll(&wait, 1, milliseconds) == 1 && ::recv(socket_, &byte, 1, 0) <= 0;
  }
  bool stopping() const { return stopping_; }

 private:
  int socket_;
  const std::atomic<bool>& stopping_;
};

class ScriptedServer {
 public:
  // (path, connection), on a thread of the connection; the connection is closed behind it.
  using Script = std::function<void(const std::string&, ScriptedConnection&)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;  // IPv4 too: connections to 127.0.0.1 come as mapped ones
    address.sin6_addr = in6addr_any;
    socklen_t size = sizeof(address);
    const int no = 0;
    listener_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin6_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stopping_ = true;
    thread_.join();
    for (std::thread& thread : connections_) thread.join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  int connections() const { return accepted_; }
  std::string url(const std::string& path, const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_) + path;
  }

 private:
  void accept_all() {
    while (!stopping_) {
      pollfd wait{listener_, POLLIN, 0};
      if (::poll(&wait, 1, 10) != 1) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      ++accepted_;
      connections_.emplace_back([this, socket] {
        serve(socket);
        ::close(socket);
      });
    }
  }
  void serve(int socket) {
    const timeval patience{5, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == request.npos) {
      const ssize_t read = ::recv(socket, buffer, sizeof(buffer), 0);
      if (read <= 0) return;
      request.append(buffer, static_cast<size_t>(read));
    }
    const size_t start = request.find(' ') + 1;
    ScriptedConnection connection(socket, stopping_);
    script_(request.substr(start, request.find(' ', start) - start), connection);
  }

  Script script_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
  std::vector<std::thread> connections_;
};

// A whole response that ends with the connection.
inline std::string http_response(const std::string& body, const std::string& headers = "",
                                 const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}
inline std::string http_redirect(const std::string& to) {
  return http_response("", "Location: " + to + "\r\n", "302 Found");
}

}  // namespace cachalot::test
