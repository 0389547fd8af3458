// Result<T>: a value, or an Error that says what was expected, what was found and what to do.
//
// Everything that can go wrong outside the program (files, JSON, options, requests) returns one;
// bugs inside it are CACHALOT_CHECK.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace cachalot {

struct Error {
  std::string message;

  // The same error with the place it was met in front: "shard.safetensors: header ...".
  Error in(std::string_view where) const { return {fmt::format("{}: {}", where, message)}; }
};

template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{fmt::format(format, std::forward<Args>(args)...)});
}

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected(std::move(error)); }

}  // namespace cachalot

#define CACHALOT_CONCAT_(a, b) a##b
#define CACHALOT_CONCAT(a, b) CACHALOT_CONCAT_(a, b)

// CACHALOT_TRY(auto x, f()): x = *f(), or return its error from the enclosing function.
#define CACHALOT_TRY(declaration, expression)                                       \
  auto CACHALOT_CONCAT(result_, __LINE__) = (expression);                           \
  if (!CACHALOT_CONCAT(result_, __LINE__))                                          \
    return ::cachalot::fail(std::move(CACHALOT_CONCAT(result_, __LINE__)).error()); \
  declaration = std::move(*CACHALOT_CONCAT(result_, __LINE__))

// CACHALOT_OK(f()): for a Status.
#define CACHALOT_OK(expression)                                                                    \
  if (auto CACHALOT_CONCAT(status_, __LINE__) = (expression); !CACHALOT_CONCAT(status_, __LINE__)) \
  return ::cachalot::fail(std::move(CACHALOT_CONCAT(status_, __LINE__)).error())
