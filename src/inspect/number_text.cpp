#include "inspect/number_text.h"

#include <fmt/format.h>

#include <algorithm>
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

namespace {

// Bytes of the first `columns` characters.
size_t bytes_of_columns(std::string_view text, size_t columns) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (begins && columns-- == 0) break;
  }
  return at;
}

void append_fitted(std::string& result, std::string line, size_t width) {
  // The bar before a line of code is a part of its indent.
  const size_t indent =
      std::min(line.find_first_not_of(line.starts_with("    | ") ? " |" : " "), line.size());
  const std::string begin = indent == 0 ? "" : line.substr(0, indent) + "    ";
  for (;;) {
    const size_t most = bytes_of_columns(line, width);
    if (most == line.size()) break;
    const size_t blank = line.rfind(' ', most);
    if (blank == line.npos || blank <= begin.size() || begin.size() + 8 > width) break;
    result.append(line, 0, line.find_last_not_of(' ', blank) + 1).append("\n");
    line.replace(0, line.find_first_not_of(' ', blank), begin);
  }
  result += line;
}

}  // namespace

std::string fitted(std::string_view text, size_t width) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    append_fitted(result, std::string(text.substr(at, end - at)), width);
    if (end < text.size()) result += '\n';
    at = end + 1;
  }
  return result;
}

}  // namespace cachalot
