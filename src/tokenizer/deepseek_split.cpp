#include "tokenizer/deepseek_split.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tokenizer/unicode_classes.h"

namespace cachalot {
namespace {

using namespace char_class;

constexpr std::array<std::string_view, 3> kPatterns = {
    R"(\p{N}{1,3})",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

constexpr uint8_t kWord = kLetter | kMark;
constexpr uint8_t kSign = kPunctuation | kSymbol;

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct Character {
  uint8_t bits;
  uint8_t length;
};

class Splitter {
 public:
  Splitter(std::string_view text, std::vector<std::string_view>& pieces)
      : classes_(UnicodeClasses::get()), pieces_(pieces), end_(text.data() + text.size()) {}

  // Patterns 1 and 2: numbers in threes, runs of CJK, and what is between them. Pattern 3 then
  // splits each of these by itself; it finds nothing in numbers.
  void run(const char* at) {
    while (at < end_) {
      const Character first = character(at);
      const char* stop = at + first.length;
      if ((first.bits & kNumber) != 0) {
        for (int count = 1; count < 3 && stop < end_; ++count) {
          const Character next = character(stop);
          if ((next.bits & kNumber) == 0) break;
          stop += next.length;
        }
        emit(at, stop);
      } else {
        while (stop < end_) {
          const Character next = character(stop);
          if (((next.bits ^ first.bits) & kCjk) != 0 || (next.bits & kNumber) != 0) break;
          stop += next.length;
        }
        split(at, stop);
      }
      at = stop;
    }
  }

 private:
  // `at` points to the start of a character of well-formed text.
  Character character(const char* at) const {
    const auto* p = reinterpret_cast<const unsigned char*>(at);
    if (p[0] < 0x80) return {classes_.of_ascii(p[0]), 1};
    if (p[0] < 0xE0) return {classes_.of((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)), 2};
    if (p[0] < 0xF0) {
      return {classes_.of((p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu)), 3};
    }
    return {classes_.of((p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
                        (p[3] & 0x3Fu)),
            4};
  }

  // The end of the run of characters of `mask` that starts at `at`.
  const char* run_end(const char* at, const char* stop, uint8_t mask) const {
    while (at < stop) {
      const Character next = character(at);
      if ((next.bits & mask) == 0) break;
      at += next.length;
    }
    return at;
  }

  void emit(const char* begin, const char* end) {
    pieces_.emplace_back(begin, static_cast<size_t>(end - begin));
  }

  // Pattern 3 on [at, stop). Characters that no alternative matches gather to one piece.
  void split(const char* at, const char* stop) {
    const char* unmatched = at;
    while (at < stop) {
      const Character first = character(at);
      const char* end = match(at, stop, first);
      if (end == at) {
        at += first.length;
        continue;
      }
      if (unmatched < at) emit(unmatched, at);
      emit(at, end);
      at = unmatched = end;
    }
    if (unmatched < stop) emit(unmatched, stop);
  }

  // The end of the match at `at`, or `at` if there is none. In the order of the alternatives.
  const char* match(const char* at, const char* stop, Character first) const {
    const char* next = at + first.length;
    const bool more = next < stop;
    // [!-/...~][A-Za-z]+
    if ((first.bits & kSign) != 0 && first.length == 1 && more && is_ascii_letter(*next)) {
      return std::find_if_not(next, stop, is_ascii_letter);
    }
    // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
    const Character second = more ? character(next) : Character{0, 0};
    const bool leads = (first.bits & (kLineBreak | kLetter | kSign)) == 0;
    if ((first.bits & kWord) != 0 || (leads && (second.bits & kWord) != 0)) {
      return run_end(next, stop, kWord);
    }
    // ' ?[\p{P}\p{S}]+[\r\n]*'
    if ((first.bits & kSign) != 0 || (*at == ' ' && (second.bits & kSign) != 0)) {
      return run_end(run_end(next, stop, kSign), stop, kLineBreak);
    }
    if ((first.bits & kWhiteSpace) != 0) return match_blanks(at, stop);
    return at;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  const char* match_blanks(const char* at, const char* stop) const {
    const char* last = at;              // the start of the run's last character
    const char* after_break = nullptr;  // the end of its last line break
    const char* end = at;
    while (end < stop) {
      const Character next = character(end);
      if ((next.bits & kWhiteSpace) == 0) break;
      last = end;
      end += next.length;
      if ((next.bits & kLineBreak) != 0) after_break = end;
    }
    if (after_break != nullptr) return after_break;
    return end == stop || last == at ? end : last;
  }

  const UnicodeClasses& classes_;
  std::vector<std::string_view>& pieces_;
  const char* end_;
};

}  // namespace

bool is_deepseek_split(std::span<const std::string> patterns) {
  return std::equal(patterns.begin(), patterns.end(), kPatterns.begin(), kPatterns.end());
}

void deepseek_split(std::string_view text, std::vector<std::string_view>& pieces) {
  Splitter(text, pieces).run(text.data());
}

}  // namespace cachalot
