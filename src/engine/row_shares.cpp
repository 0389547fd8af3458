#include "engine/row_shares.h"

#include <algorithm>
#include <numeric>

namespace cachalot {

std::vector<int64_t> share_rows(std::span<const int64_t> wanted, int64_t budget) {
  std::vector<size_t> by_size(wanted.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::ranges::stable_sort(by_size, {}, [&](size_t i) { return wanted[i]; });
  std::vector<int64_t> shares(wanted.size(), 0);
  int64_t left = std::max<int64_t>(budget, 0), sharing = std::ssize(wanted);
  for (const size_t i : by_size) {
    shares[i] = std::min(wanted[i], left / sharing);
    left -= shares[i];
    --sharing;
  }
  return shares;
}

}  // namespace cachalot
