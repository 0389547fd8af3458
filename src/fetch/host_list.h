// The hosts an operator lets this program fetch from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

class HostList {
 public:
  // Each entry is HOST or HOST:PORT. HOST is a name in ASCII (xn-- for others), "*.example.org" for
  // every name below example.org, "*" for any, or an address ("[2001:db8::1]" for IPv6). Without a
  // port the scheme's own is meant: 80 for http, 443 for https. Errors: an entry of another form.
  static Result<HostList> parse(const std::vector<std::string>& entries);

  // `host` as libcurl writes it: a name, an IPv4 address, an IPv6 address in brackets. `own_port`:
  // the scheme's.
  bool allows(std::string_view host, uint16_t port, uint16_t own_port) const;

 private:
  struct Entry {
    std::string host;    // lower case, no dot at the end; of "*.x" ".x"; of "*" empty
    bool below = false;  // what ends in `host`
    std::optional<uint16_t> port;
  };
  static Result<Entry> parse_entry(const std::string& text);

  std::vector<Entry> entries_;
};

}  // namespace cachalot
