#include "server/request_fields.h"

#include <cmath>

namespace cachalot {
namespace {

constexpr size_t kShownLength = 60;

bool any_lone_surrogate(const Json& value) {
  if (const std::string* text = value.string()) return has_lone_surrogate(*text);
  if (const Json::Array* array = value.array()) {
    for (const Json& item : *array)
      if (any_lone_surrogate(item)) return true;
  }
  if (const Json::Object* object = value.object()) {
    for (const Json::Member& member : *object)
      if (has_lone_surrogate(member.key) || any_lone_surrogate(member.value)) return true;
  }
  return false;
}

std::optional<double> as_number(const Json& value) {
  if (const double* real = value.real()) return *real;
  if (!value.is_integer()) return std::nullopt;
  // Integers of any size: those beyond 64 bits are still comparable with a range.
  if (const auto integer = value.int64()) return static_cast<double>(*integer);
  return std::strtod(value.dump().c_str(), nullptr);
}

}  // namespace

std::string found(const Json& value) {
  if (value.array() || value.object() || value.is_null()) return value.kind_name();
  std::string text = value.dump();
  if (text.size() <= kShownLength) return text;
  return fmt::format("{} of {} bytes", value.kind_name(), text.size());
}

std::string RequestFields::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const Json* RequestFields::member(std::string_view key) const {
  const Json* value = object_->find(key);
  return value && !value->is_null() ? value : nullptr;
}

ApiResult<std::optional<bool>> RequestFields::boolean(std::string_view key) const {
  const Json* value = member(key);
  if (!value) return std::optional<bool>();
  if (const bool* boolean = value->boolean()) return std::optional<bool>(*boolean);
  return refuse(path(key), "expected true or false, found {}", found(*value));
}

ApiResult<std::optional<double>> RequestFields::number(std::string_view key, double least,
                                                       double most) const {
  const Json* value = member(key);
  if (!value) return std::optional<double>();
  const auto number = as_number(*value);
  if (number && *number >= least && *number <= most) return number;
  return refuse(path(key), "expected a number from {} to {}, found {}", least, most, found(*value));
}

ApiResult<std::optional<int64_t>> RequestFields::integer(std::string_view key, int64_t least,
                                                         int64_t most) const {
  const Json* value = member(key);
  if (!value) return std::optional<int64_t>();
  auto integer = value->int64();
  // Some clients write every number with a point.
  if (const double* real = value->real();
      real && std::trunc(*real) == *real && std::fabs(*real) < 0x1p53)
    integer = static_cast<int64_t>(*real);
  if (integer && *integer >= least && *integer <= most) return integer;
  return refuse(path(key), "expected a whole number from {} to {}, found {}", least, most,
                found(*value));
}

ApiResult<std::optional<std::string>> RequestFields::string(std::string_view key) const {
  const Json* value = member(key);
  if (!value) return std::optional<std::string>();
  if (const std::string* text = value->string()) return std::optional<std::string>(*text);
  return refuse(path(key), "expected a string, found {}", found(*value));
}

ApiResult<std::optional<std::vector<std::string>>> RequestFields::strings(std::string_view key,
                                                                          size_t most,
                                                                          bool or_one) const {
  using Strings = std::vector<std::string>;
  const Json* value = member(key);
  if (!value) return std::optional<Strings>();
  if (or_one && value->string()) return std::optional<Strings>(Strings{*value->string()});
  const Json::Array* array = value->array();
  if (!array) {
    return refuse(path(key), "expected {}an array of strings, found {}",
                  or_one ? "a string or " : "", found(*value));
  }
  if (array->size() > most)
    return refuse(path(key), "expected at most {} strings, found {}", most, array->size());
  Strings result;
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string* text = (*array)[i].string();
    if (!text)
      return refuse(fmt::format("{}[{}]", path(key), i), "expected a string, found {}",
                    found((*array)[i]));
    result.push_back(*text);
  }
  return std::optional<Strings>(std::move(result));
}

ApiResult<const Json*> RequestFields::object(std::string_view key) const {
  const Json* value = member(key);
  if (value && !value->object())
    return refuse(path(key), "expected an object, found {}", found(*value));
  return value;
}

ApiResult<const Json*> RequestFields::array(std::string_view key) const {
  const Json* value = member(key);
  if (value && !value->array())
    return refuse(path(key), "expected an array, found {}", found(*value));
  return value;
}

ApiResult<Json> parse_request_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == body.npos)
    return fail(ApiError(400, "the body is empty: expected a JSON object"));
  auto json = parse_json(body);
  if (!json)
    return fail(ApiError(400, fmt::format("the body is not valid JSON: {}", json.error().message)));
  if (!json->object())
    return fail(
        ApiError(400, fmt::format("the body is {}: expected a JSON object", json->kind_name())));
  if (any_lone_surrogate(*json))
    return fail(ApiError(400,
                         "the body holds a lone surrogate (\\ud800 to \\udfff without its "
                         "partner), which is no character"));
  return std::move(*json);
}

}  // namespace cachalot
