// What the person in front of the program should know: errors, notes, timings, progress.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace cachalot {

// To stderr. Unlike fmt::print it does not throw where stderr is closed or full: an answer must not
// be lost because nobody hears how long it took.
template <class... Values>
void report(fmt::format_string<Values...> format, Values&&... values) {
  const std::string text = fmt::format(format, std::forward<Values>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace cachalot
