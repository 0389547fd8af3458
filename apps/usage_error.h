// Errors of the command line that only show once a model is open: exit code 2, like those the
// parser finds.
#pragma once

#include <CLI/CLI.hpp>
#include <utility>

#include "base/result.h"

namespace cachalot {

// Caught by main(), which names the command's help.
[[noreturn]] inline void usage_error(const Error& error) {
  throw CLI::ValidationError(error.message);
}

template <class... Args>
[[noreturn]] void usage_error(fmt::format_string<Args...> format, Args&&... args) {
  usage_error(Error{fmt::format(format, std::forward<Args>(args)...)});
}

// The value, where an error could only come from the command line.
template <class T>
T or_usage_error(Result<T> result) {
  if (!result) usage_error(result.error());
  return std::move(*result);
}

}  // namespace cachalot
