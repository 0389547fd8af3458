#include "tokenizer/regex_translation.h"

#include <algorithm>
#include <cctype>

#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

using namespace char_class;

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The members of a class as they stand between brackets.
std::string class_members(uint8_t mask) {
  std::string members;
  for (const auto& [first, last] : UnicodeClasses::get().ranges(mask)) {
    members += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(first),
                           static_cast<uint32_t>(last));
  }
  return members;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    if (valid_utf8_prefix(pattern_) != pattern_.size()) return fail("pattern is not UTF-8");
    while (position_ < pattern_.size()) CACHALOT_OK(element());
    if (depth_ != 0) return refuse("( without )");
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (!pattern_.substr(position_).starts_with(text)) return false;
    position_ += text.size();
    return true;
  }
  tl::unexpected<Error> refuse(std::string_view construct) const {
    return fail("pattern \"{}\", byte {}: {} is not supported", pattern_, position_, construct);
  }

  Status element() {
    const char c = peek();
    if (c == '\\') return escape(false);
    if (c == '[') return bracket();
    if (c == '(') return group();
    if (c == ')') {
      if (depth_ == 0) return refuse(") without (");
      --depth_;
      ++position_;
      out_ += ')';
      // A group that repeats could take exponential time.
      if (peek() == '?') return quantifier();
      if (peek() == '*' || peek() == '+' || peek() == '{') return refuse("a group that repeats");
      return {};
    }
    if (c == '^' || c == '$' || c == '.') return refuse(std::string_view(&c, 1));
    if (c == '|') {
      ++position_;
      out_ += c;
      return {};
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') return refuse("a quantifier here");
    literal();
    return quantifier();
  }

  void literal() {
    const size_t length = next_utf8(pattern_.substr(position_)).length;
    out_ += pattern_.substr(position_, length);
    position_ += length;
  }

  Status group() {
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?i:", "(?>"}) {
      if (!take(opening)) continue;
      ++depth_;
      if (depth_ > 50) return refuse("nesting this deep");
      out_ += opening;
      return {};
    }
    return refuse("a group other than (?: (?= (?! (?i: (?>");
  }

  // ?, *, +, {n}, {n,}, {n,m}, each perhaps lazy (?) or, the first three, possessive (+).
  Status quantifier() {
    const char c = peek();
    if (c == '?' || c == '*' || c == '+') {
      out_ += c;
      ++position_;
      if (peek() == '?' || peek() == '+') out_ += pattern_[position_++];
    } else if (c == '{') {
      const size_t close = pattern_.find('}', position_);
      if (close == std::string_view::npos) return refuse("{ without }");
      const std::string_view body = pattern_.substr(position_ + 1, close - position_ - 1);
      const bool counts =
          !body.empty() && is_digit(body[0]) && body.size() <= 9 &&
          std::count(body.begin(), body.end(), ',') <= 1 &&
          std::all_of(body.begin(), body.end(), [](char d) { return is_digit(d) || d == ','; });
      if (!counts) return refuse("{ other than {n}, {n,}, {n,m}");
      out_ += pattern_.substr(position_, close - position_ + 1);
      position_ = close + 1;
      if (peek() == '?') out_ += pattern_[position_++];
      if (peek() == '+') return refuse("+ after }");  // possessive for PCRE2 only
    } else {
      return {};
    }
    const char next = peek();
    if (next == '?' || next == '*' || next == '+' || next == '{') {
      return refuse("a quantifier of a quantifier");
    }
    return {};
  }

  // An escape, inside or outside of brackets.
  Status escape(bool inside) {
    const char c = peek(1);
    if (c == 's' || c == 'S') return set(kWhiteSpace, c == 'S', 2, inside);
    if (c == 'p' || c == 'P') return property(inside);
    if (c == 'd') {
      out_ += "\\d";  // the decimal digits, in both
      position_ += 2;
    } else if (c == 'u' || c == 'x') {
      CACHALOT_OK(code_point(c == 'u' ? 4 : 2));
    } else if (std::string_view("nrtfv").find(c) != std::string_view::npos && c != '\0') {
      out_ += c == 'v' ? "\\x0b" : std::string{'\\', c};
      position_ += 2;
    } else if (c > ' ' && c < '\x7F' && !std::isalnum(static_cast<unsigned char>(c))) {
      out_ += {'\\', c};
      position_ += 2;
    } else {
      return refuse(fmt::format("\\{}", c == '\0' ? ' ' : c));
    }
    return inside ? Status{} : quantifier();
  }

  Status code_point(size_t digits) {
    const std::string_view hex = pattern_.substr(std::min(position_ + 2, pattern_.size()), digits);
    const auto is_hex = [](char d) { return std::isxdigit(static_cast<unsigned char>(d)) != 0; };
    if (hex.size() != digits || !std::all_of(hex.begin(), hex.end(), is_hex)) {
      return refuse("a \\u or \\x without its hexadecimal digits");
    }
    out_ += fmt::format("\\x{{{}}}", hex);
    position_ += 2 + digits;
    return {};
  }

  // \p{X}, \P{X}, \p{^X}. Classes without a table of ours are PCRE2's.
  Status property(bool inside) {
    const size_t close = pattern_.find('}', position_);
    if (peek(2) != '{' || close == std::string_view::npos) return refuse("\\p without {name}");
    std::string_view name = pattern_.substr(position_ + 3, close - position_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const size_t length = close + 1 - position_;
    if (name == "L") return set(kLetter, negated, length, inside);
    if (name == "M") return set(kMark, negated, length, inside);
    if (name == "N") return set(kNumber, negated, length, inside);
    if (name == "P") return set(kPunctuation, negated, length, inside);
    if (name == "S") return set(kSymbol, negated, length, inside);
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    position_ += length;
    return inside ? Status{} : quantifier();
  }

  Status set(uint8_t mask, bool negated, size_t length, bool inside) {
    if (inside && negated) return refuse("a negated class inside brackets");
    const std::string members = class_members(mask);
    out_ += inside ? members : fmt::format("[{}{}]", negated ? "^" : "", members);
    position_ += length;
    return inside ? Status{} : quantifier();
  }

  Status bracket() {
    ++position_;
    out_ += '[';
    if (take("^")) out_ += '^';
    if (peek() == ']') return refuse("] first in brackets");
    while (true) {
      if (position_ >= pattern_.size()) return refuse("[ without ]");
      if (take("]")) break;
      if (peek() == '[') return refuse("[ inside brackets");
      if (peek() == '&' && peek(1) == '&') return refuse("&& inside brackets");
      if (peek() == '\\') {
        CACHALOT_OK(escape(true));
        continue;
      }
      const size_t size = next_utf8(pattern_.substr(position_)).length;
      out_ += pattern_.substr(position_, size);
      position_ += size;
    }
    out_ += ']';
    return quantifier();
  }

  std::string_view pattern_;
  std::string out_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace cachalot
