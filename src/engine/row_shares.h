// How the rows of a step are split among the prompts that wait for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cachalot {

// Equal shares of `budget`; what short prompts leave goes to the others, what cannot be split to
// the first ones. So a short prompt never waits for a long one.
std::vector<int64_t> share_rows(std::span<const int64_t> wanted, int64_t budget);

}  // namespace cachalot
