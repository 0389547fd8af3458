// Members of a request's JSON with their types and ranges. null means absent everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace cachalot {

// Errors of all functions: 400 with `param`, the path of the field.
class RequestFields {
 public:
  // `object` is an object and outlives this; `path` is its own place ("" at the top).
  explicit RequestFields(const Json& object, std::string path = {})
      : object_(&object), path_(std::move(path)) {}

  // "stream_options.include_usage"
  std::string path(std::string_view key) const;

  // nullptr: absent or null.
  const Json* member(std::string_view key) const;

  ApiResult<std::optional<bool>> boolean(std::string_view key) const;
  ApiResult<std::optional<double>> number(std::string_view key, double least, double most) const;
  ApiResult<std::optional<int64_t>> integer(std::string_view key, int64_t least,
                                            int64_t most) const;
  ApiResult<std::optional<std::string>> string(std::string_view key) const;
  // A list of strings; with `or_one` a single string, too. At most `most`.
  ApiResult<std::optional<std::vector<std::string>>> strings(std::string_view key, size_t most,
                                                             bool or_one = false) const;
  ApiResult<const Json*> object(std::string_view key) const;  // nullptr: absent
  ApiResult<const Json*> array(std::string_view key) const;   // nullptr: absent

  const Json& json() const { return *object_; }

 private:
  const Json* object_;
  std::string path_;
};

// A request's body as a JSON object. Errors: not JSON (with the offset), another kind of value,
// lone surrogates.
ApiResult<Json> parse_request_body(std::string_view body);

// "a number", "the string \"abc\"": what was found, short enough for an error.
std::string found(const Json& value);

}  // namespace cachalot
