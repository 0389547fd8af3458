// Which addresses of the network a server may be sent to by its clients.
#pragma once

#include <sys/socket.h>

#include <functional>

namespace cachalot {

// Whether a connection to the address may be made.
using AddressPolicy = std::function<bool(const sockaddr& address)>;

// Globally reachable unicast (IANA's registries of special-purpose addresses): not this machine,
// not a private, link-local or shared network, not multicast, not reserved; no IPv6 address that
// stands for an IPv4 one, but for NAT64 (64:ff9b::/96) with a public one inside.
bool is_public_address(const sockaddr& address);

}  // namespace cachalot
