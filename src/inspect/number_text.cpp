#include "inspect/number_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace cachalot {
namespace {

std::string scaled(double value, const char* ones, const std::array<const char*, 4>& units) {
  size_t unit = 0;
  while (unit < units.size() && std::abs(value) >= 999.5) {
    value /= 1000;
    ++unit;
  }
  const char* name = unit == 0 ? ones : units[unit - 1];
  if (unit == 0) return fmt::format("{:.0f}{}", value, name);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, name);
}

}  // namespace

std::string short_count(double value) { return scaled(value, "", {"k", "M", "B", "T"}); }

std::string short_flops(double value) {
  return scaled(value, " FLOP", {"kFLOP", "MFLOP", "GFLOP", "TFLOP"});
}

std::string short_bytes(double value) { return scaled(value, " B", {"kB", "MB", "GB", "TB"}); }

}  // namespace cachalot
