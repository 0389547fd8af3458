#include "tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace cachalot {
namespace {

// What the lead byte promises: the sequence's length and the range of its second byte (the ranges
// exclude overlong forms, surrogates and what lies above U+10FFFF). Length 0: no lead byte.
struct Lead {
  size_t length;
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0, 1, false, false};
  char32_t code_point = first & (0x7F >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {0, i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : byte >= 0x80 && byte <= 0xBF;
    if (!fits) return {0, i, false, false};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, lead.length, true, false};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (position + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + position, 8);
      if ((word & 0x8080808080808080u) == 0) {
        position += 8;
        continue;
      }
    }
    const Utf8Step step = next_utf8(text.substr(position));
    if (!step.valid) break;
    position += step.length;
  }
  return position;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

void append_with_replacements(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(next_utf8(text).length);
  }
}

}  // namespace cachalot
