#include "fetch/address_policy.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace cachalot {
namespace {

struct Ipv4Block {
  uint32_t address;
  int bits;
};
constexpr uint32_t ipv4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}
constexpr Ipv4Block kSpecialIpv4[] = {
    {ipv4(0, 0, 0, 0), 8},        // this network
    {ipv4(10, 0, 0, 0), 8},       // private
    {ipv4(100, 64, 0, 0), 10},    // shared by customers of a provider
    {ipv4(127, 0, 0, 0), 8},      // loopback
    {ipv4(169, 254, 0, 0), 16},   // link-local, and where clouds keep their secrets
    {ipv4(172, 16, 0, 0), 12},    // private
    {ipv4(192, 0, 0, 0), 24},     // protocol assignments
    {ipv4(192, 0, 2, 0), 24},     // documentation
    {ipv4(192, 88, 99, 0), 24},   // relays of 6to4
    {ipv4(192, 168, 0, 0), 16},   // private
    {ipv4(198, 18, 0, 0), 15},    // benchmarks
    {ipv4(198, 51, 100, 0), 24},  // documentation
    {ipv4(203, 0, 113, 0), 24},   // documentation
    {ipv4(224, 0, 0, 0), 4},      // multicast
    {ipv4(240, 0, 0, 0), 4},      // reserved, broadcast
};

struct Ipv6Block {
  std::array<uint8_t, 4> address;  // no block below is longer than 32 bits
  int bits;
};
constexpr Ipv6Block kGlobalIpv6{{0x20, 0, 0, 0}, 3};
constexpr Ipv6Block kSpecialIpv6[] = {
    {{0x20, 0x01, 0, 0}, 23},        // protocol assignments, Teredo among them
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    {{0x20, 0x02, 0, 0}, 16},        // 6to4: an IPv4 address inside
    {{0x3f, 0xff, 0, 0}, 20},        // documentation
};
constexpr uint8_t kNat64[12] = {0, 0x64, 0xff, 0x9b};

uint32_t big_endian(const uint8_t* bytes) { return ipv4(bytes[0], bytes[1], bytes[2], bytes[3]); }

bool in_block(uint32_t address, uint32_t block, int bits) {
  return (address ^ block) >> (32 - bits) == 0;
}

bool is_public_ipv4(uint32_t address) {
  return std::ranges::none_of(kSpecialIpv4, [&](const Ipv4Block& block) {
    return in_block(address, block.address, block.bits);
  });
}

bool is_public_ipv6(const uint8_t* bytes) {
  if (std::memcmp(bytes, kNat64, sizeof(kNat64)) == 0)
    return is_public_ipv4(big_endian(bytes + 12));
  const uint32_t beginning = big_endian(bytes);
  const auto in = [&](const Ipv6Block& block) {
    return in_block(beginning, big_endian(block.address.data()), block.bits);
  };
  return in(kGlobalIpv6) && std::ranges::none_of(kSpecialIpv6, in);
}

}  // namespace

bool is_public_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    return is_public_ipv4(ntohl(ip.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(address);
    return is_public_ipv6(ip.sin6_addr.s6_addr);
  }
  return false;
}

}  // namespace cachalot
