// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace cachalot {

// 41,943,040
inline std::string grouped(int64_t value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  if (value < 0) digits.insert(0, 1, '-');
  return digits;
}

// Three digits and a unit: "41.9 M", "510 GB", "687 GFLOP".
std::string short_count(double value);
std::string short_bytes(double value);
std::string short_flops(double value);

// Lines longer than `width` broken at blanks and continued behind their indent and four more (none
// where there was none).
std::string fitted(std::string_view text, size_t width);

}  // namespace cachalot
