#include "number_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace cachalot {
namespace {

// Bytes of a unit; 0: there is none of that name.
double unit_bytes(std::string unit) {
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgtp";
  const size_t power = kPrefixes.find(unit.front());
  if (power == kPrefixes.npos) return 0;
  const std::string rest = unit.substr(1);
  const double base = rest == "ib" ? 1024 : rest.empty() || rest == "b" ? 1000 : 0;
  return base == 0 ? 0 : std::pow(base, static_cast<double>(power + 1));
}

}  // namespace

int64_t bytes_of_size(const std::string& text) {
  const bool digits = !text.empty() && std::isdigit(static_cast<unsigned char>(text.front()));
  char* end = nullptr;
  const double number = digits ? std::strtod(text.c_str(), &end) : -1;
  while (digits && *end == ' ') ++end;
  const double unit = digits ? unit_bytes(end) : 0;
  if (unit == 0 || (number > 0 && number * unit < 1)) {
    throw CLI::ValidationError(
        fmt::format("expected a size such as 16GiB, 1.5GB or 4096, found \"{}\"", text));
  }
  if (!(number * unit < 0x1p62)) {
    throw CLI::ValidationError(
        fmt::format("expected a size below 4096 PiB, found \"{}\", which is too large", text));
  }
  return static_cast<int64_t>(number * unit);
}

CLI::Validator size_in_bytes() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        try {
          text = std::to_string(bytes_of_size(text));
        } catch (const CLI::ValidationError& error) {
          return error.what();
        }
        return {};
      },
      "SIZE");
}

CLI::Validator number_from(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most) return {};
        return fmt::format("expected a number from {} to {}, found \"{}\"", least, most, text);
      },
      fmt::format("FLOAT in [{} - {}]", least, most));
}

}  // namespace cachalot
