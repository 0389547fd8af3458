#include "fetch/fetcher.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "fetch/scripted_server.h"

namespace cachalot {
namespace {

using test::http_redirect;
using test::http_response;
using test::ScriptedConnection;
using test::ScriptedServer;
using namespace std::chrono_literals;

bool any_address(const sockaddr&) { return true; }

std::shared_ptr<const Fetcher> fetcher_for(const std::vector<std::string>& hosts,
                                           FetchLimits limits = {},
                                           AddressPolicy allowed = any_address) {
  return *Fetcher::make(*HostList::parse(hosts), limits, std::move(allowed));
}
// Any host, at the server's port.
std::shared_ptr<const Fetcher> fetcher_to(const ScriptedServer& server, FetchLimits limits = {},
                                          AddressPolicy allowed = any_address) {
  return fetcher_for({"*:" + std::to_string(server.port())}, limits, std::move(allowed));
}

// The body, or the error's words.
std::string fetched(const Fetcher& fetcher, const std::string& url,
                    const Abandoned& abandoned = {}) {
  const std::vector<std::string> urls = {url};
  const auto bodies = fetcher.fetch(urls, abandoned);
  if (!bodies) return "error: " + bodies.error().error.message;
  return {bodies->front().begin(), bodies->front().end()};
}
bool says(const std::string& text, const std::string& part) {
  return text.starts_with("error: ") && text.find(part) != text.npos;
}

void send_path(const std::string& path, ScriptedConnection& connection) {
  connection.send(http_response("file " + path));
}

TEST(Fetcher, BringsAFile) {
  ScriptedServer server(send_path);
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/a.png?size=1")), "file /a.png?size=1");
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/b", "localhost")), "file /b");
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/c", "[::1]")), "file /c");
}

TEST(Fetcher, BringsSeveralAtTheSameTimeInTheirOrder) {
  // Nobody is answered before all have asked.
  std::atomic<int> waiting{0};
  ScriptedServer server([&](const std::string& path, ScriptedConnection& connection) {
    ++waiting;
    while (waiting < 6 && !connection.stopping()) std::this_thread::sleep_for(1ms);
    connection.send(http_response(path));
  });
  std::vector<std::string> urls;
  for (int i = 0; i < 6; ++i) urls.push_back(server.url("/" + std::to_string(i)));
  const auto bodies = fetcher_to(server)->fetch(urls, {});
  ASSERT_TRUE(bodies) << bodies.error().error.message;
  for (size_t i = 0; i < urls.size(); ++i) {
    EXPECT_EQ(std::string((*bodies)[i].begin(), (*bodies)[i].end()), "/" + std::to_string(i));
  }
}

TEST(Fetcher, NamesTheUrlAtFault) {
  ScriptedServer server([](const std::string& path, ScriptedConnection& connection) {
    connection.send(http_response("", "", path == "/c" ? "404 Not Found" : "200 OK"));
  });
  const std::vector<std::string> urls = {server.url("/a"), server.url("/b"), server.url("/c")};
  const auto bodies = fetcher_to(server)->fetch(urls, {});
  ASSERT_FALSE(bodies);
  EXPECT_EQ(bodies.error().url, 2U);
  EXPECT_EQ(bodies.error().error.message, "127.0.0.1: answered with status 404");
}

// Every spelling of this machine and of a cloud's metadata, with every host on the list.
TEST(Fetcher, ReachesNoPrivateAddressHoweverItIsWritten) {
  ScriptedServer server(send_path);
  const auto fetcher = fetcher_to(server, {}, is_public_address);
  for (const char* host : {"127.0.0.1",
                           "localhost",
                           "LOCALHOST",
                           "localhost.",
                           "[::1]",
                           "0.0.0.0",
                           "0",
                           "[::]",
                           "127.1",
                           "2130706433",
                           "0x7f000001",
                           "0x7f.1",
                           "017700000001",
                           "0177.0.0.1",
                           "127.0.0.1.",
                           "%31%32%37.0.0.1",
                           "[::ffff:127.0.0.1]",
                           "[::ffff:7f00:1]",
                           "[0:0:0:0:0:ffff:7f00:1]",
                           "[64:ff9b::7f00:1]",
                           "169.254.169.254",
                           "[fe80::1]",
                           "[fd00:ec2::254]",
                           "10.0.0.1",
                           "192.168.0.1"}) {
    const std::string answer = fetched(*fetcher, server.url("/secret", host));
    EXPECT_TRUE(answer.starts_with("error: ")) << host << ": " << answer;
    EXPECT_EQ(answer.find("file /"), answer.npos) << host;
  }
  EXPECT_EQ(server.connections(), 0);
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/", "127.0.0.1")), "not a public one"));
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/", "localhost")), "not a public one"));
}

TEST(Fetcher, JudgesTheAddressItConnectsToNotOneLookedUpBefore) {
  ScriptedServer server(send_path);
  // Asked once per socket, with the address that the socket then goes to: a name that means another
  // address a moment later is judged by that one.
  std::vector<int> ports;
  int calls = 0;
  const auto first_only = [&](const sockaddr& address) {
    ports.push_back(ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
    return ++calls == 1;
  };
  const auto fetcher = fetcher_to(server, {}, first_only);
  EXPECT_EQ(fetched(*fetcher, server.url("/a")), "file /a");
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/b")), "not a public one"));
  EXPECT_EQ(server.connections(), 1);
  EXPECT_EQ(ports, (std::vector<int>{server.port(), server.port()}));
}

TEST(Fetcher, TakesListedHostsOnly) {
  ScriptedServer server(send_path);
  const std::string port = std::to_string(server.port());
  const auto fetcher = fetcher_for({"localhost:" + port, "images.example.org"});
  EXPECT_EQ(fetched(*fetcher, server.url("/a", "localhost")), "file /a");
  EXPECT_EQ(fetched(*fetcher, server.url("/a")),
            "error: 127.0.0.1:" + port + " is not among the hosts this server fetches from");
  EXPECT_TRUE(says(fetched(*fetcher, "http://localhost/"), "localhost:80 is not among"));
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/a", "images.example.org")), "is not among"));
  EXPECT_EQ(server.connections(), 1);
}

TEST(Fetcher, RefusesWhatIsNoPlainWebAddress) {
  ScriptedServer server(send_path);
  const auto fetcher = fetcher_for({"*", "*:" + std::to_string(server.port())});
  const std::string at = ":" + std::to_string(server.port()) + "/";
  for (const std::string& url :
       {std::string("file:///etc/passwd"), "ftp://127.0.0.1" + at, "gopher://127.0.0.1" + at,
        std::string("http://"), "http://user@127.0.0.1" + at, "http://user:word@127.0.0.1" + at,
        "http://127.0.0.1" + at + "a b", "127.0.0.1" + at, "http://127.0.0.1:99999/" + at,
        "http://b\xc3\xbc"
        "cher.example" +
            at,
        "http://127.0.0.1" + at + std::string(9000, 'x')}) {
    EXPECT_TRUE(says(fetched(*fetcher, url), "")) << url;
  }
  EXPECT_EQ(server.connections(), 0);
}

TEST(Fetcher, JudgesEveryRedirectAnew) {
  std::string target;
  ScriptedServer server([&](const std::string& path, ScriptedConnection& connection) {
    connection.send(path == "/start" ? http_redirect(target) : http_response("file " + path));
  });
  const std::string port = std::to_string(server.port());
  const auto fetcher = fetcher_for({"127.0.0.1:" + port});
  const auto redirected = [&](const std::string& to) {
    target = to;
    return fetched(*fetcher, server.url("/start"));
  };
  EXPECT_EQ(redirected("/next"), "file /next");
  EXPECT_EQ(redirected(server.url("/other")), "file /other");
  const int before = server.connections();
  EXPECT_EQ(redirected(server.url("/other", "localhost")),
            "error: 127.0.0.1 redirects: localhost:" + port +
                " is not among the hosts this server fetches from");
  EXPECT_TRUE(says(redirected("http://169.254.169.254/latest"), "is not among"));
  EXPECT_TRUE(says(redirected("file:///etc/passwd"), "expected http or https"));
  EXPECT_TRUE(says(redirected("http://user@127.0.0.1:" + port + "/"), "user's name"));
  EXPECT_EQ(server.connections(), before + 4);  // the first hop alone, each time
}

TEST(Fetcher, ReachesNoPrivateAddressThroughARedirect) {
  ScriptedServer server([&](const std::string& path, ScriptedConnection& connection) {
    connection.send(path == "/start"
                        ? http_redirect("http://[::1]:" + std::to_string(server.port()) + "/secret")
                        : http_response("file " + path));
  });
  // The first hop may stand for a public server; the second is this machine.
  const auto ipv4_only = [](const sockaddr& address) { return address.sa_family == AF_INET; };
  EXPECT_TRUE(says(fetched(*fetcher_to(server, {}, ipv4_only), server.url("/start")),
                   "[::1]: its address is not a public one"));
  EXPECT_EQ(server.connections(), 1);
}

TEST(Fetcher, FollowsAFewRedirectsOnly) {
  ScriptedServer server([](const std::string& path, ScriptedConnection& connection) {
    const int left = std::atoi(path.c_str() + 1);
    connection.send(left == 0 ? http_response("end")
                              : http_redirect("/" + std::to_string(left - 1)));
  });
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/3")), "end");
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/4")),
            "error: 127.0.0.1: more than 3 redirects");
}

TEST(Fetcher, StopsAtTheSizeThatIsTold) {
  ScriptedServer server([](const std::string&, ScriptedConnection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
    connection.closed_within(5000);
  });
  const auto fetcher = fetcher_to(server, {.bytes = 1000});
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/")), "may have 1000 bytes together"));
}

TEST(Fetcher, StopsAtTheSizeThatIsNotTold) {
  std::atomic<int64_t> sent{0};
  const auto endless = [&](const std::string& path, ScriptedConnection& connection) {
    const bool chunked = path == "/chunked";
    connection.send(std::string("HTTP/1.1 200 OK\r\n") +
                    (chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
    const std::string part(10000, 'x');
    while (connection.send(chunked ? "2710\r\n" + part + "\r\n" : part)) sent += 10000;
  };
  ScriptedServer server(endless);
  const auto fetcher = fetcher_to(server, {.bytes = 100'000});
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/")), "may have 100000 bytes together"));
  EXPECT_TRUE(says(fetched(*fetcher, server.url("/chunked")), "may have 100000 bytes together"));
}

TEST(Fetcher, CountsTheBytesOfAllFilesTogether) {
  ScriptedServer server([](const std::string&, ScriptedConnection& connection) {
    connection.send(http_response(std::string(600, 'x')));
  });
  const std::vector<std::string> urls = {server.url("/a"), server.url("/b")};
  EXPECT_TRUE(fetcher_to(server, {.bytes = 1200})->fetch(urls, {}));
  EXPECT_FALSE(fetcher_to(server, {.bytes = 1199})->fetch(urls, {}));
  EXPECT_FALSE(fetcher_to(server, {.files = 1})->fetch(urls, {}));
}

TEST(Fetcher, UnpacksNothing) {
  // 1 MB of zeros, packed by gzip, would pass the limit.
  const std::string packed = "\x1f\x8b\x08 whatever a bomb holds";
  ScriptedServer server([&](const std::string& path, ScriptedConnection& connection) {
    connection.send(http_response(packed, "Content-Encoding: " + path.substr(1) + "\r\n"));
  });
  for (const char* coding : {"/gzip", "/deflate", "/br", "/zstd"})
    EXPECT_EQ(fetched(*fetcher_to(server), server.url(coding)), packed) << coding;
}

TEST(Fetcher, BoundsWhatAPackedTransferBecomes) {
  // 20 MB of zeros in 20 kB: what libcurl unpacks of its own accord counts as it is unpacked.
  const std::string bomb = [] {
    std::string bytes;
    FILE* gzip = ::popen("head -c 20000000 /dev/zero | gzip -9c", "r");
    char buffer[4096];
    for (size_t read = 0; (read = ::fread(buffer, 1, sizeof(buffer), gzip)) > 0;)
      bytes.append(buffer, read);
    ::pclose(gzip);
    return bytes;
  }();
  ASSERT_GT(bomb.size(), 1000U);
  ScriptedServer server([&](const std::string&, ScriptedConnection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" + bomb);
  });
  const std::string answer = fetched(*fetcher_to(server, {.bytes = 1'000'000}), server.url("/"));
  EXPECT_TRUE(says(answer, "may have 1000000 bytes together")) << answer.substr(0, 100);
}

TEST(Fetcher, BoundsHeaders) {
  ScriptedServer server([](const std::string&, ScriptedConnection& connection) {
    connection.send("HTTP/1.1 200 OK\r\n");
    while (connection.send("X-Name: " + std::string(1000, 'x') + "\r\n")) {
    }
  });
  EXPECT_TRUE(says(fetched(*fetcher_to(server), server.url("/")), "headers"));
}

TEST(Fetcher, DoesNotWaitForSlowServers) {
  ScriptedServer server([](const std::string& path, ScriptedConnection& connection) {
    if (path != "/silent") connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    while (path == "/silent" ? !connection.closed_within(20) && !connection.stopping()
                             : connection.send("x"))
      std::this_thread::sleep_for(5ms);
  });
  const auto fetcher = fetcher_to(server, {.total_time = 200ms});
  for (const char* path : {"/silent", "/slow"}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(says(fetched(*fetcher, server.url(path)), "may take 0.2 s together")) << path;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  }
}

TEST(Fetcher, EndsWhenTheClientHasGone) {
  std::atomic<bool> asked{false}, closed{false};
  ScriptedServer server([&](const std::string&, ScriptedConnection& connection) {
    asked = true;
    closed = connection.closed_within(4000);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(says(fetched(*fetcher_to(server), server.url("/"), [&] { return asked.load(); }),
                   "the client has gone"));
  for (int i = 0; i < 400 && !closed; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(closed);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
}

TEST(Fetcher, SaysWhenNobodyAnswers) {
  const auto fetcher = fetcher_for({"*:1"});
  EXPECT_TRUE(says(fetched(*fetcher, "http://127.0.0.1:1/"), "127.0.0.1: "));
  EXPECT_TRUE(says(fetched(*fetcher, "http://nothing.invalid:1/"), "nothing.invalid: "));
}

TEST(Fetcher, UsesNoProxyOfTheEnvironment) {
  ScriptedServer proxy(send_path), server(send_path);
  ::setenv("http_proxy", proxy.url("").c_str(), 1);
  ::setenv("all_proxy", proxy.url("").c_str(), 1);
  EXPECT_EQ(fetched(*fetcher_to(server), server.url("/a")), "file /a");
  ::unsetenv("http_proxy");
  ::unsetenv("all_proxy");
  EXPECT_EQ(proxy.connections(), 0);
}

TEST(Fetcher, BringsNothingOfNothing) { EXPECT_TRUE(fetcher_for({})->fetch({}, {})->empty()); }

}  // namespace
}  // namespace cachalot
