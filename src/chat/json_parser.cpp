// parse_json. Own code because no common parser keeps both large integers and lone surrogates.
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "chat/json_value.h"

namespace cachalot {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 0 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

void append_code_point(std::string& out, uint32_t point) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

// The last value of a repeated key wins, at the place of the first.
Json::Object without_duplicates(Json::Object members) {
  if (members.size() < 2) return members;
  std::unordered_map<std::string_view, size_t> places;
  places.reserve(members.size());
  std::vector<size_t> value_of(members.size());
  bool repeated = false;
  for (size_t i = 0; i < members.size(); ++i) {
    value_of[i] = i;
    const auto [place, is_new] = places.try_emplace(members[i].key, i);
    if (!is_new) value_of[place->second] = i;
    repeated = repeated || !is_new;
  }
  if (!repeated) return members;
  Json::Object kept;
  for (size_t i = 0; i < members.size(); ++i) {
    if (places.at(members[i].key) != i) continue;
    kept.push_back({members[i].key, std::move(members[value_of[i]].value)});
  }
  return kept;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> document() {
    if (text_.starts_with("\xEF\xBB\xBF")) return error("a byte order mark; send plain UTF-8");
    CACHALOT_TRY(Json value, this->value(0));
    skip_blanks();
    if (at_ < text_.size()) return error("more text after the JSON value");
    return value;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;

  tl::unexpected<Error> error(std::string_view what) const {
    return fail("invalid JSON at byte {}: {}", at_, what);
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Result<Json> value(size_t depth) {
    skip_blanks();
    if (depth > kJsonDepthLimit) {
      return error(fmt::format("nesting deeper than {} levels", kJsonDepthLimit));
    }
    if (at_ == text_.size()) return error("the text ends where a value is expected");
    const char c = text_[at_];
    if (c == '{') return object(depth);
    if (c == '[') return array(depth);
    if (c == '"') {
      CACHALOT_TRY(std::string text, string());
      return Json(std::move(text));
    }
    if (c == '-' || is_digit(c)) return number();
    if (take("true")) return Json(true);
    if (take("false")) return Json(false);
    if (take("null")) return Json();
    return error("expected a value (NaN and Infinity are not JSON)");
  }

  Result<Json> array(size_t depth) {
    ++at_;
    Json::Array items;
    skip_blanks();
    if (take("]")) return Json(std::move(items));
    while (true) {
      CACHALOT_TRY(Json item, value(depth + 1));
      items.push_back(std::move(item));
      skip_blanks();
      if (take("]")) return Json(std::move(items));
      if (!take(",")) return error("expected ',' or ']' in an array");
    }
  }

  Result<Json> object(size_t depth) {
    ++at_;
    Json::Object members;
    skip_blanks();
    if (take("}")) return Json(std::move(members));
    while (true) {
      skip_blanks();
      if (!text_.substr(at_).starts_with('"')) return error("expected a quoted key in an object");
      CACHALOT_TRY(std::string key, string());
      skip_blanks();
      if (!take(":")) return error("expected ':' after a key");
      CACHALOT_TRY(Json item, value(depth + 1));
      members.push_back({std::move(key), std::move(item)});
      skip_blanks();
      if (take("}")) return Json(without_duplicates(std::move(members)));
      if (!take(",")) return error("expected ',' or '}' in an object");
    }
  }

  size_t skip_digits() {
    const size_t from = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - from;
  }

  Result<Json> number() {
    const size_t from = at_;
    take("-");
    const bool zero = take("0");
    if (!zero && skip_digits() == 0) return error("expected a digit");
    bool is_float = false;
    if (take(".")) {
      is_float = true;
      if (skip_digits() == 0) return error("expected a digit after the decimal point");
    }
    if (take("e") || take("E")) {
      is_float = true;
      if (!take("+")) take("-");
      if (skip_digits() == 0) return error("expected a digit in the exponent");
    }
    const std::string literal(text_.substr(from, at_ - from));
    if (!is_float) return Json::integer(literal == "-0" ? "0" : literal);
    // strtod and not from_chars: only it tells underflow (a fine 0) from overflow.
    const double number = std::strtod(literal.c_str(), nullptr);
    if (!std::isfinite(number)) return error("number outside the range of a double");
    return Json(number);
  }

  Result<uint32_t> hex4() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit(c) && (lower < 'a' || lower > 'f')) return error("expected 4 hex digits");
      unit = unit << 4 | static_cast<uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return unit;
  }

  Status unicode_escape(std::string& out) {
    CACHALOT_TRY(uint32_t point, hex4());
    if (point >= 0xD800 && point < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const size_t before = at_;
      at_ += 2;
      CACHALOT_TRY(const uint32_t low, hex4());
      if (low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = before;
      }
    }
    append_code_point(out, point);
    return {};
  }

  Status escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (take("u")) return unicode_escape(out);
    const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : kNames.npos;
    if (which == kNames.npos) return error("unknown escape in a string");
    out += kValues[which];
    ++at_;
    return {};
  }

  Result<std::string> string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ == text_.size()) return error("the text ends inside a string");
      if (take("\"")) return out;
      if (take("\\")) {
        CACHALOT_OK(escape(out));
        continue;
      }
      if (static_cast<uint8_t>(text_[at_]) < 0x20) {
        return error("a raw control character in a string; escape it");
      }
      const size_t length = utf8_length(text_.substr(at_));
      if (length == 0) return error("invalid UTF-8");
      out.append(text_, at_, length);
      at_ += length;
    }
  }
};

}  // namespace

Result<Json> parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace cachalot
