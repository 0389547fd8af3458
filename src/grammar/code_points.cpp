#include "grammar/code_points.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace cachalot {

CodePoints CodePoints::all() {
  CodePoints result(0, 0xD7FF);
  result.add(0xE000, kLastCodePoint);
  return result;
}

CodePoints CodePoints::of(std::string_view text) {
  CodePoints result;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    result.add(step.code_point, step.code_point);
    text.remove_prefix(step.length);
  }
  return result;
}

void CodePoints::add(char32_t first, char32_t last) {
  if (first > last) return;
  auto begin =
      std::lower_bound(ranges_.begin(), ranges_.end(), first,
                       [](const Range& r, char32_t c) { return r.last < c && c - r.last > 1; });
  auto end = begin;
  for (; end != ranges_.end() && (end->first <= last || end->first - last == 1); ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), Range{first, last});
}

void CodePoints::add(const CodePoints& others) {
  for (const Range& range : others.ranges_) add(range.first, range.last);
}

CodePoints CodePoints::intersected(const CodePoints& others) const {
  CodePoints result;
  auto a = ranges_.begin(), b = others.ranges_.begin();
  while (a != ranges_.end() && b != others.ranges_.end()) {
    result.add(std::max(a->first, b->first), std::min(a->last, b->last));
    a->last < b->last ? void(++a) : void(++b);
  }
  return result;
}

CodePoints CodePoints::without(const CodePoints& others) const {
  CodePoints result;
  for (const Range& range : ranges_) {
    char32_t next = range.first;
    bool rest = true;
    for (const Range& hole : others.ranges_) {
      if (hole.last < next || hole.first > range.last) continue;
      if (hole.first > next) result.add(next, hole.first - 1);
      if (hole.last >= range.last) {
        rest = false;
        break;
      }
      next = hole.last + 1;
    }
    if (rest) result.add(next, range.last);
  }
  return result;
}

bool CodePoints::contains(char32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

}  // namespace cachalot
