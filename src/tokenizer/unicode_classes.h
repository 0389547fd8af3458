// Character classes for pre-tokenization: the major general categories of Unicode 16 and
// White_Space, as bit masks.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace cachalot {

namespace char_class {
inline constexpr uint8_t kLetter = 1;       // \p{L}
inline constexpr uint8_t kMark = 2;         // \p{M}
inline constexpr uint8_t kNumber = 4;       // \p{N}
inline constexpr uint8_t kPunctuation = 8;  // \p{P}
inline constexpr uint8_t kSymbol = 16;      // \p{S}
inline constexpr uint8_t kWhiteSpace = 32;  // Unicode White_Space, what \s means in Oniguruma
inline constexpr uint8_t kLineBreak = 64;   // CR and LF only
inline constexpr uint8_t kCjk = 128;        // U+4E00-U+9FA5 and U+3040-U+30FF
}  // namespace char_class

class UnicodeClasses {
 public:
  static const UnicodeClasses& get();

  // code_point <= 0x10FFFF.
  uint8_t of(char32_t code_point) const {
    return pages_[page_of_[code_point >> 8]][code_point & 0xFF];
  }
  uint8_t of_ascii(unsigned char byte) const { return pages_[0][byte]; }

  // First and last code point of every run in which `mask` has a bit, in ascending order.
  std::vector<std::pair<char32_t, char32_t>> ranges(uint8_t mask) const;

 private:
  UnicodeClasses();

  std::array<uint16_t, 0x1100> page_of_;
  std::vector<std::array<uint8_t, 256>> pages_;  // each distinct page once; 0 is U+0000-U+00FF
};

}  // namespace cachalot
