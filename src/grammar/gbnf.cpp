#include "grammar/gbnf.h"

#include <algorithm>
#include <map>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

constexpr int kMostRepetitions = 100000;
constexpr int kMostGroups = 200;  // nested

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  GbnfParser(TextRules& texts, GrammarBuilder& builder, std::string_view text)
      : texts_(texts), builder_(builder), text_(text) {}

  Result<int32_t> run() {
    if (const size_t valid = valid_utf8_prefix(text_); valid < text_.size()) {
      at_ = valid;
      return error("no valid UTF-8");
    }
    skip_blanks(true);
    while (at_ < text_.size()) CACHALOT_OK(rule());
    for (const auto& [name, known] : rules_) {
      if (known.defined) continue;
      at_ = known.at;
      return error(fmt::format("'{}' is used, but no rule gives it", name.substr(0, 100)));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return fail("grammar: there is no rule 'root', with which every text begins");
    return root->second.rule;
  }

 private:
  struct Known {
    int32_t rule = 0;
    bool defined = false;
    size_t at = 0;  // where it was first used
  };
  TextRules& texts_;
  GrammarBuilder& builder_;
  std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, Known, std::less<>> rules_;

  tl::unexpected<Error> error(std::string_view what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::ranges::count(before, '\n');
    const size_t begin = before.rfind('\n') + 1;  // npos + 1 = 0
    const auto column = 1 + std::ranges::count_if(before.substr(begin), [](char c) {
                          return (static_cast<uint8_t>(c) & 0xC0) != 0x80;
                        });
    return fail("grammar, line {}, column {}: {}", line, column, what);
  }

  bool peek(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void skip_blanks(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Known& known(std::string_view name, size_t at) {
    const auto [entry, added] = rules_.try_emplace(std::string(name));
    if (added)
      entry->second = {
          .rule = builder_.add_rule(fmt::format("grammar, rule '{}'", name.substr(0, 100))),
          .at = at};
    return entry->second;
  }

  std::string_view name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Status rule() {
    const size_t begin = at_;
    const std::string_view title = name();
    if (title.empty()) return error("expected the name of a rule");
    Known& entry = known(title, begin);
    if (entry.defined) {
      at_ = begin;
      return error(fmt::format("a second rule '{}'", title.substr(0, 100)));
    }
    entry.defined = true;
    skip_blanks(false);
    if (!take("::=")) return error("expected '::='");
    skip_blanks(true);
    const int32_t start = builder_.start(entry.rule), end = builder_.add_node();
    builder_.set_final(end);
    CACHALOT_OK(choice(start, end, 0));
    if (at_ < text_.size() && !peek('\n') && !peek('\r'))
      return error("expected the end of the line, or one of \" [ ( . | and names");
    skip_blanks(true);
    return {};
  }

  Status choice(int32_t from, int32_t to, int depth) {
    if (depth > kMostGroups) return error("groups are nested too deeply");
    while (true) {
      CACHALOT_TRY(const int32_t end, sequence(from, depth));
      builder_.add_empty(end, to);
      if (!take("|")) return {};
      skip_blanks(true);
    }
  }

  Result<int32_t> sequence(int32_t from, int depth) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c != '"' && c != '[' && c != '(' && c != '.' && !is_name(c)) break;
      // A rule of its own, so that a repetition costs a call a time.
      const int32_t item = builder_.add_rule(fmt::format("grammar, byte {}", at_));
      CACHALOT_OK(symbol(item, depth));
      CACHALOT_TRY(from, repeat(item, from));
      skip_blanks(depth > 0);
      if (builder_.full()) return error("the grammar is too large");
    }
    return from;
  }

  // The symbol as the content of a rule.
  Status symbol(int32_t rule, int depth) {
    const int32_t from = builder_.start(rule), to = builder_.add_node();
    builder_.set_final(to);
    if (take("\"")) return literal(from, to);
    if (take("[")) return bracketed(from, to);
    if (take(".")) {
      texts_.add(from, CodePoints::all(), Spelling::kRaw, to);
      return {};
    }
    if (take("(")) {
      skip_blanks(true);
      CACHALOT_OK(choice(from, to, depth + 1));
      if (!take(")")) return error("expected ')'");
      return {};
    }
    const size_t begin = at_;
    builder_.add_call(from, known(name(), begin).rule, to);
    return {};
  }

  Result<int> count() {
    int64_t result = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      result = std::min<int64_t>(result * 10 + (text_[at_] - '0'), kMostRepetitions + 1);
    if (result > kMostRepetitions)
      return error(fmt::format("more than {} repetitions", kMostRepetitions));
    return static_cast<int>(result);
  }

  Result<int32_t> repeat(int32_t item, int32_t from) {
    int least = 1, most = 1;  // most -1: no limit
    if (take("*")) {
      least = 0;
      most = -1;
    } else if (take("+")) {
      most = -1;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      skip_blanks(false);
      const bool given = at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
      CACHALOT_TRY(least, count());
      most = least;
      skip_blanks(false);
      if (take(",")) {
        skip_blanks(false);
        most = -1;
        if (!peek('}')) {
          CACHALOT_TRY(most, count());
        }
        skip_blanks(false);
      } else if (!given) {
        return error("expected a number");
      }
      if (!take("}")) return error("expected {m}, {m,} or {m,n}");
      if (most >= 0 && most < least) return error("a repetition whose limits are reversed");
    }
    return repeated(item, from, least, most);
  }

  Result<int32_t> repeated(int32_t item, int32_t from, int least, int most) {
    for (int i = 0; i < least && !builder_.full(); ++i) from = builder_.call(from, item);
    if (most < 0) {
      const int32_t loop = builder_.add_node();
      builder_.add_empty(from, loop);
      builder_.add_call(loop, item, loop);
      return loop;
    }
    const int32_t end = builder_.add_node();
    builder_.add_empty(from, end);
    for (int i = least; i < most && !builder_.full(); ++i) {
      from = builder_.call(from, item);
      builder_.add_empty(from, end);
    }
    return end;
  }

  Result<char32_t> hex(int digits) {
    char32_t result = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        result = result * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        result = result * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        return error(fmt::format("expected {} hexadecimal digits", digits));
      }
      ++at_;
    }
    if (result > kLastCodePoint || (result >= 0xD800 && result < 0xE000))
      return error("no code point");
    return result;
  }

  // One character of a literal or class.
  Result<char32_t> character() {
    if (at_ == text_.size()) return error("the text ends in a literal or class");
    if (!take("\\")) {
      const Utf8Step step = next_utf8(text_.substr(at_));
      at_ += step.length;
      return step.code_point;
    }
    if (at_ == text_.size()) return error("the text ends in an escape");
    switch (const char c = text_[at_++]) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<char32_t>(c);
      default:
        --at_;
        return error("an unknown escape");
    }
  }

  Status literal(int32_t from, int32_t to) {
    std::string bytes;
    while (!take("\"")) {
      CACHALOT_TRY(const char32_t c, character());
      append_utf8(c, bytes);
    }
    builder_.add_empty(builder_.text(from, bytes), to);
    return {};
  }

  Status bracketed(int32_t from, int32_t to) {
    const bool negated = take("^");
    CodePoints set;
    while (!take("]")) {
      CACHALOT_TRY(const char32_t first, character());
      char32_t last = first;
      if (peek('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        CACHALOT_TRY(last, character());
      }
      if (last < first) return error("a range whose ends are reversed");
      set.add(first, last);
    }
    set = negated ? set.complement() : set.intersected(CodePoints::all());
    if (!set.empty()) texts_.add(from, set, Spelling::kRaw, to);
    return {};
  }
};

}  // namespace

Result<int32_t> add_gbnf(TextRules& texts, GrammarBuilder& builder, std::string_view grammar) {
  return GbnfParser(texts, builder, grammar).run();
}

}  // namespace cachalot
