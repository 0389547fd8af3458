// Files of other servers, fetched for a client that nobody trusts.
//
// What a client may reach through this machine is bounded three times: by the list of hosts, asked
// for every redirect anew; by the address of every connection, judged when the socket is opened, so
// that it does not matter what a name resolves to at another time; and by size and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "fetch/address_policy.h"
#include "fetch/host_list.h"

namespace cachalot {

struct FetchLimits {
  int64_t files = 64;                            // URLs of one call
  int64_t bytes = int64_t{64} << 20;             // of all files of one call together
  int64_t header_bytes = int64_t{64} << 10;      // of one file, its redirects' included
  int64_t redirects = 3;                         // of one file
  std::chrono::milliseconds connect_time{5000};  // of one connection, its name's look-up included
  std::chrono::milliseconds total_time{20000};   // of one call
};

// Why a call failed, and at which of its URLs.
struct FetchFailure {
  size_t url = 0;
  Error error;
};

// Asked again and again, from the calling thread: true ends the work.
using Abandoned = std::function<bool()>;

// Thread-safe.
class Fetcher {
 public:
  // Errors: this program was built without libcurl.
  static Result<std::shared_ptr<const Fetcher>> make(HostList hosts, FetchLimits limits = {},
                                                     AddressPolicy allowed = is_public_address);

  // One body per URL, as the server sent it: http or https, status 200, nothing is unpacked. At
  // most eight connections at a time. The first failure ends all. Nothing of the environment
  // (proxies, .netrc, cookies) is used.
  tl::expected<std::vector<std::vector<uint8_t>>, FetchFailure> fetch(
      std::span<const std::string> urls, const Abandoned& abandoned) const;

 private:
  Fetcher(HostList hosts, FetchLimits limits, AddressPolicy allowed);

  HostList hosts_;
  FetchLimits limits_;
  AddressPolicy allowed_;
};

}  // namespace cachalot
