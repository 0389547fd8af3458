// CACHALOT_CHECK: an invariant of the program itself. On in every build type; a failure is a bug.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace cachalot::detail {
[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}
}  // namespace cachalot::detail

#define CACHALOT_CHECK(condition, ...)                                 \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::cachalot::detail::check_failed(__FILE__, __LINE__, #condition, \
                                       ::fmt::format("" __VA_ARGS__)); \
  } while (false)
