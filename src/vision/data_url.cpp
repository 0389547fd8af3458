#include "vision/data_url.h"

#include <algorithm>

namespace cachalot {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

// -1: none of base64's, in its own or the URL-safe alphabet.
int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

bool is_data_url(std::string_view url) { return equal_but_for_case(url.substr(0, 5), "data:"); }

Result<std::vector<uint8_t>> decode_base64(std::string_view text, int64_t max_bytes) {
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int held = 0;
  size_t at = 0;
  for (; at < text.size() && text[at] != '='; ++at) {
    if (is_space(text[at])) continue;
    const int value = value_of(text[at]);
    if (value < 0) {
      return fail("expected base64, found the byte {:#04x} at character {}",
                  static_cast<uint8_t>(text[at]), at);
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> held));
    if (static_cast<int64_t>(bytes.size()) > max_bytes) {
      return fail("the picture's file has more than the {} bytes allowed", max_bytes);
    }
  }
  for (; at < text.size(); ++at) {
    if (text[at] != '=' && !is_space(text[at])) return fail("base64 goes on behind its padding");
  }
  if (held >= 6) return fail("base64 is cut off");
  if (bytes.empty()) return fail("the picture's file is empty");
  return bytes;
}

Result<std::vector<uint8_t>> decode_data_url(std::string_view url, int64_t max_bytes) {
  if (!is_data_url(url)) return fail("expected a data: URL");
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) {
    return fail("expected data:TYPE;base64,BYTES, found no comma");
  }
  constexpr std::string_view kMark = ";base64";
  const std::string_view header = url.substr(0, comma);
  if (header.size() < kMark.size() ||
      !equal_but_for_case(header.substr(header.size() - kMark.size()), kMark)) {
    return fail("expected data:TYPE;base64,BYTES, found \"{}\" before the comma",
                header.substr(0, 80));
  }
  return decode_base64(url.substr(comma + 1), max_bytes);
}

}  // namespace cachalot
