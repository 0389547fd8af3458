// Instead of the fetcher where there is no libcurl.
#include "fetch/fetcher.h"

namespace cachalot {

Result<std::shared_ptr<const Fetcher>> Fetcher::make(HostList, FetchLimits, AddressPolicy) {
  return fail("this program was built without libcurl and fetches nothing");
}

tl::expected<std::vector<std::vector<uint8_t>>, FetchFailure> Fetcher::fetch(
    std::span<const std::string>, const Abandoned&) const {
  return tl::unexpected(FetchFailure{0, {"this program was built without libcurl"}});
}

}  // namespace cachalot
