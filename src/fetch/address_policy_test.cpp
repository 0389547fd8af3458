#include "fetch/address_policy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace cachalot {
namespace {

bool is_public(const std::string& text) {
  sockaddr_storage storage{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  const bool is_ipv4 = inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1;
  EXPECT_TRUE(is_ipv4 || inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1) << text;
  storage.ss_family = is_ipv4 ? AF_INET : AF_INET6;
  return is_public_address(reinterpret_cast<const sockaddr&>(storage));
}

TEST(AddressPolicy, TakesPublicAddresses) {
  for (const char* text :
       {"1.1.1.1",         "9.255.255.255",   "11.0.0.0",        "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.0",       "169.253.255.255", "169.255.0.0",    "172.15.255.255",
        "172.32.0.0",      "192.167.255.255", "192.169.0.0",     "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "2000::1",         "2606:4700::1111", "2001:200::1",    "2a00::1",
        "3ffe::1",         "64:ff9b::1.1.1.1"}) {
    EXPECT_TRUE(is_public(text)) << text;
  }
}

TEST(AddressPolicy, RefusesAllOthers) {
  for (const char* text :
       {"0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255",
        "127.0.0.1", "127.255.255.255", "169.254.0.0", "169.254.169.254", "172.16.0.0",
        "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.0", "192.168.255.255",
        "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
        "239.255.255.255", "240.0.0.1", "255.255.255.255",
        // unspecified, loopback, mapped, compatible, translated
        "::", "::1", "::ffff:127.0.0.1", "::ffff:1.1.1.1", "::1.1.1.1", "::ffff:0:1.1.1.1",
        "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1.1.1.1",
        // discard-only, unique local, link-local, site-local, multicast
        "100::1", "fc00::1", "fdff::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1",
        // Teredo, benchmarks, documentation, 6to4, not assigned
        "2001::1", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "2002:101:101::", "3fff::1",
        "4000::1", "1fff::1"}) {
    EXPECT_FALSE(is_public(text)) << text;
  }
}

TEST(AddressPolicy, RefusesOtherKindsOfAddresses) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  EXPECT_FALSE(is_public_address(reinterpret_cast<const sockaddr&>(local)));
}

}  // namespace
}  // namespace cachalot
