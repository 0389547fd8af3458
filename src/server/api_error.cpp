#include "server/api_error.h"

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// The path a message of the parsers begins with: "messages[2].content[0]: expected ...".
std::string leading_path(const std::string& message) {
  const size_t end = message.find_first_not_of(
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]");
  if (end == message.npos || end == 0 || message.compare(end, 2, ": ") != 0) return {};
  return message.substr(0, end);
}

// Messages quote what a client sent, and may cut it anywhere.
std::string as_utf8(std::string_view text) {
  std::string result;
  append_with_replacements(text, result);
  return result;
}

}  // namespace

ApiError::ApiError(const Error& error)
    : message(error.message), param(leading_path(error.message)) {}

ApiError::ApiError(int status_, std::string message_, std::string param_, std::string code_)
    : status(status_),
      message(std::move(message_)),
      param(std::move(param_)),
      code(std::move(code_)) {
  if (!code.empty()) return;
  code = status >= 500 ? "internal_error" : "invalid_request_error";
}

std::string_view error_type(const ApiError& error) {
  if (error.status >= 500) return "internal_error";
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return "invalid_request_error";
  }
}

Json error_json(const ApiError& error) {
  Json inner(Json::Object{
      {"message", Json(as_utf8(error.message))},
      {"type", Json(error_type(error))},
      {"param", error.param.empty() ? Json() : Json(as_utf8(error.param))},
      {"code", Json(error.code)},
  });
  return Json(Json::Object{{"error", std::move(inner)}});
}

}  // namespace cachalot
