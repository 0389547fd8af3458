// What a client is told when its request cannot be served.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/result.h"
#include "chat/json_value.h"

namespace cachalot {

struct ApiError {
  ApiError() = default;
  // A request that was refused further down (400). Messages such as "messages[2].role: unknown
  // role" name the field.
  ApiError(const Error& error);
  ApiError(int status, std::string message, std::string param = {}, std::string code = {});

  int status = 400;
  std::string message;
  std::string param;  // the field at fault, empty: none
  // invalid_request_error, context_length_exceeded, model_not_found, rate_limit_exceeded,
  // internal_error, ...
  std::string code = "invalid_request_error";
  double retry_after = 0;  // seconds, 429 and 503
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

// For CACHALOT_TRY and CACHALOT_OK.
inline tl::unexpected<ApiError> fail(ApiError error) { return tl::unexpected(std::move(error)); }

// A field of a request that cannot be taken; `param` stands in front of the message.
template <class... Args>
tl::unexpected<ApiError> refuse(std::string_view param, fmt::format_string<Args...> format,
                                Args&&... args) {
  return tl::unexpected(
      ApiError(400, fmt::format("{}: {}", param, fmt::format(format, std::forward<Args>(args)...)),
               std::string(param)));
}

// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it; valid JSON and
// UTF-8 whatever the message holds.
Json error_json(const ApiError& error);
// "invalid_request_error" or, from 500 on, "internal_error"; 401 authentication_error, 404
// not_found_error, 429 rate_limit_error.
std::string_view error_type(const ApiError& error);

}  // namespace cachalot
