#include "tokenizer/unicode_classes.h"

#include <iterator>
#include <map>

namespace cachalot {
namespace {

using namespace char_class;

struct Run {
  char32_t first;
  uint8_t bits;
};

constexpr uint8_t kL = kLetter, kM = kMark, kN = kNumber, kP = kPunctuation, kS = kSymbol, kO = 0;

constexpr Run kRuns[] = {
#include "tokenizer/unicode_class_ranges.inc"
};

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_cjk(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

}  // namespace

UnicodeClasses::UnicodeClasses() {
  std::map<std::array<uint8_t, 256>, uint16_t> known;
  size_t run = 0;
  for (char32_t block = 0; block < page_of_.size(); ++block) {
    std::array<uint8_t, 256> page;
    for (char32_t low = 0; low < 256; ++low) {
      const char32_t c = block << 8 | low;
      while (run + 1 < std::size(kRuns) && kRuns[run + 1].first <= c) ++run;
      uint8_t bits = kRuns[run].bits;
      if (is_white_space(c)) bits |= kWhiteSpace;
      if (c == '\r' || c == '\n') bits |= kLineBreak;
      if (is_cjk(c)) bits |= kCjk;
      page[low] = bits;
    }
    const auto [entry, added] = known.try_emplace(page, static_cast<uint16_t>(pages_.size()));
    if (added) pages_.push_back(page);
    page_of_[block] = entry->second;
  }
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

std::vector<std::pair<char32_t, char32_t>> UnicodeClasses::ranges(uint8_t mask) const {
  std::vector<std::pair<char32_t, char32_t>> result;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if ((of(c) & mask) == 0) continue;
    if (!result.empty() && result.back().second + 1 == c) {
      result.back().second = c;
    } else {
      result.emplace_back(c, c);
    }
  }
  return result;
}

}  // namespace cachalot
