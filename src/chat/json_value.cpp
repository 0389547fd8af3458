#include "chat/json_value.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace cachalot {
namespace {

// A surrogate code point in three bytes: ED A0..BF xx. Valid UTF-8 has ED 80..9F only.
bool surrogate_at(std::string_view text, size_t i) {
  return i + 2 < text.size() && static_cast<uint8_t>(text[i]) == 0xED &&
         static_cast<uint8_t>(text[i + 1]) >= 0xA0;
}

size_t find_surrogate(std::string_view text, size_t from) {
  for (size_t i = text.find('\xED', from); i != text.npos; i = text.find('\xED', i + 1)) {
    if (surrogate_at(text, i)) return i;
  }
  return text.npos;
}

void append_unicode_escape(std::string& out, uint32_t unit) {
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", unit);
}

// `text` is UTF-8 except for surrogates in three bytes, as parse_json makes it.
void append_ascii_escaped(std::string& out, std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      append_json_escaped(out, text.substr(i++, 1));
      continue;
    }
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t point = lead & (0xFFu >> (length + 1));
    for (size_t k = 1; k < length && i + k < text.size(); ++k) {
      point = point << 6 | (static_cast<uint8_t>(text[i + k]) & 0x3F);
    }
    i += length;
    if (point < 0x10000) {
      append_unicode_escape(out, point);
    } else {
      append_unicode_escape(out, 0xD800 + ((point - 0x10000) >> 10));
      append_unicode_escape(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
    }
  }
}

// Python's repr: the shortest digits that read back; plain notation for exponents -4 to 15.
void append_float(std::string& out, double value) {
  std::array<char, 40> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  CACHALOT_CHECK(e != text.npos, "a float in a JSON value must be finite");
  std::string_view mantissa = text.substr(0, e);
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    fmt::format_to(std::back_inserter(out), "{}e{}{:02}", mantissa, exponent < 0 ? '-' : '+',
                   std::abs(exponent));
    return;
  }
  if (mantissa.front() == '-') {
    out += '-';
    mantissa.remove_prefix(1);
  }
  std::string digits(mantissa.substr(0, 1));
  if (mantissa.size() > 2) digits += mantissa.substr(2);
  if (exponent < 0) {
    out += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    return;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) digits.append(whole - digits.size() + 1, '0');
  out.append(digits, 0, whole).append(".").append(digits, whole);
}

}  // namespace

Json::Json(bool value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}

Json Json::integer(std::string digits) {
  Json result;
  result.value_ = Integer{std::move(digits)};
  return result;
}

Json Json::integer(int64_t value) { return integer(std::to_string(value)); }

std::optional<int64_t> Json::int64() const {
  const auto* integer = std::get_if<Integer>(&value_);
  if (!integer) return std::nullopt;
  int64_t number = 0;
  const char* end = integer->digits.data() + integer->digits.size();
  const auto [stop, code] = std::from_chars(integer->digits.data(), end, number);
  if (code != std::errc() || stop != end) return std::nullopt;
  return number;
}

const Json* Json::find(std::string_view key) const {
  if (const Object* members = object()) {
    for (const Member& member : *members) {
      if (member.key == key) return &member.value;
    }
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  CACHALOT_CHECK(object(), "set() needs an object");
  for (Member& member : *object()) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  object()->push_back({std::string(key), std::move(value)});
}

void Json::erase(std::string_view key) {
  CACHALOT_CHECK(object(), "erase() needs an object");
  std::erase_if(*object(), [&](const Member& member) { return member.key == key; });
}

const char* Json::kind_name() const {
  constexpr std::array<const char*, 7> kNames = {"null",     "a boolean", "a number", "a number",
                                                 "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

std::string Json::dump() const {
  std::string out;
  dump_to(out, has_lone_surrogate());
  return out;
}

bool Json::has_lone_surrogate() const {
  if (const auto* text = string()) return cachalot::has_lone_surrogate(*text);
  if (const auto* items = array()) {
    for (const Json& item : *items) {
      if (item.has_lone_surrogate()) return true;
    }
  }
  if (const auto* members = object()) {
    for (const Member& member : *members) {
      if (cachalot::has_lone_surrogate(member.key) || member.value.has_lone_surrogate()) {
        return true;
      }
    }
  }
  return false;
}

void Json::dump_to(std::string& out, bool ascii) const {
  const auto quote = [&](std::string_view text) {
    out += '"';
    ascii ? append_ascii_escaped(out, text) : append_json_escaped(out, text);
    out += '"';
  };
  if (is_null()) {
    out += "null";
  } else if (const bool* truth = boolean()) {
    out += *truth ? "true" : "false";
  } else if (const auto* integer = std::get_if<Integer>(&value_)) {
    out += integer->digits;
  } else if (const double* number = real()) {
    append_float(out, *number);
  } else if (const std::string* text = string()) {
    quote(*text);
  } else if (const Array* items = array()) {
    out += '[';
    for (size_t i = 0; i < items->size(); ++i) {
      if (i) out += ", ";
      (*items)[i].dump_to(out, ascii);
    }
    out += ']';
  } else if (const Object* members = object()) {
    out += '{';
    for (size_t i = 0; i < members->size(); ++i) {
      if (i) out += ", ";
      quote((*members)[i].key);
      out += ": ";
      (*members)[i].value.dump_to(out, ascii);
    }
    out += '}';
  }
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          append_unicode_escape(out, static_cast<uint8_t>(c));
        } else {
          out += c;
        }
    }
  }
}

bool has_lone_surrogate(std::string_view text) { return find_surrogate(text, 0) != text.npos; }

std::string replace_lone_surrogates(std::string_view text) {
  std::string out;
  size_t from = 0;
  for (size_t at; (at = find_surrogate(text, from)) != text.npos; from = at + 3) {
    out.append(text.substr(from, at - from)).append("\xEF\xBF\xBD");
  }
  return out.append(text.substr(from));
}

}  // namespace cachalot
