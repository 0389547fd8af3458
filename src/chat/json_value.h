// Json: a JSON value that survives a round trip the way Python's json module lets it survive.
//
// Prompts contain JSON (schemas, arguments of earlier calls), and the prompt text must not change
// by a byte: keys keep the order received, integers of any size stay exact, floats print as
// Python's repr (1.0, 1e-05, 1e+16), a duplicate key keeps its first place and its last value.
// General purpose libraries round large integers and refuse lone surrogates, which is why this type
// exists.
//
// Strings are UTF-8; a lone surrogate escape (\ud83d without its partner) is held as the three
// bytes its code point would have, which no valid UTF-8 contains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace cachalot {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() = default;
  // Defined where Member is complete.
  Json(bool value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array value);
  Json(Object value);
  // `digits` is a JSON integer of any size.
  static Json integer(std::string digits);
  static Json integer(int64_t value);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  bool is_integer() const { return std::holds_alternative<Integer>(value_); }
  // Empty if this is no integer or does not fit.
  std::optional<int64_t> int64() const;

  // Member of an object; nullptr if absent or if this is no object.
  const Json* find(std::string_view key) const;
  // Sets a member: in place if the key exists, else at the end. This must be an object.
  void set(std::string_view key, Json value);
  void erase(std::string_view key);

  // "null", "a boolean", "a number", "a string", "an array", "an object": for error messages.
  const char* kind_name() const;

  // json.dumps(value, ensure_ascii=False); if any string holds a lone surrogate, the same value
  // with everything outside ASCII escaped.
  std::string dump() const;

 private:
  struct Integer {
    std::string digits;
  };
  std::variant<std::monostate, bool, Integer, double, std::string, Array, Object> value_;

  void dump_to(std::string& out, bool ascii) const;
  bool has_lone_surrogate() const;
};

struct Json::Member {
  std::string key;
  Json value;
};

inline constexpr size_t kJsonDepthLimit = 256;

// One JSON document, blanks around it allowed. Refuses NaN, Infinity, numbers beyond double, raw
// control characters, invalid UTF-8, a byte order mark, nesting beyond kJsonDepthLimit. Errors name
// the byte offset.
Result<Json> parse_json(std::string_view text);

// Appends `text` with JSON's escapes and without quotes; works on any split of the text.
void append_json_escaped(std::string& out, std::string_view text);

bool has_lone_surrogate(std::string_view text);
// Each lone surrogate becomes U+FFFD, so that the result is valid UTF-8.
std::string replace_lone_surrogates(std::string_view text);

}  // namespace cachalot
