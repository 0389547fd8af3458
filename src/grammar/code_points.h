// Sets of Unicode code points, as sorted ranges.
#pragma once

#include <compare>
#include <cstddef>
#include <string_view>
#include <vector>

namespace cachalot {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

class CodePoints {
 public:
  struct Range {
    char32_t first, last;
    auto operator<=>(const Range&) const = default;
  };

  CodePoints() = default;
  CodePoints(char32_t first, char32_t last) { add(first, last); }

  // Every code point a text can hold: all but the surrogates.
  static CodePoints all();
  // The code points of `text`, which is valid UTF-8.
  static CodePoints of(std::string_view text);

  void add(char32_t first, char32_t last);
  void add(const CodePoints& others);
  CodePoints intersected(const CodePoints& others) const;
  CodePoints without(const CodePoints& others) const;
  CodePoints complement() const { return all().without(*this); }

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t code_point) const;
  bool contains(const CodePoints& others) const { return others.without(*this).empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  auto operator<=>(const CodePoints&) const = default;

 private:
  std::vector<Range> ranges_;  // sorted, neither touching nor overlapping
};

}  // namespace cachalot
