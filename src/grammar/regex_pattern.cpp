#include "grammar/regex_pattern.h"

#include <algorithm>
#include <optional>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// The text is read between these two, so that ^ and $ are characters like others.
constexpr char32_t kTextStart = kLastCodePoint + 1, kTextEnd = kLastCodePoint + 2;
constexpr int kMostRepetitions = 10000;
constexpr int kMostGroups = 200;  // nested

struct Expression {
  enum Kind { kSet, kSequence, kChoice, kRepeat } kind = kSequence;
  CodePoints set;
  std::vector<Expression> parts;
  int least = 0, most = -1;  // kRepeat; most -1: no limit
};

CodePoints class_of(char32_t letter) {
  CodePoints result;
  switch (letter) {
    case 'd':
    case 'D':
      result.add('0', '9');
      break;
    case 'w':
    case 'W':
      result.add('0', '9');
      result.add('A', 'Z');
      result.add('a', 'z');
      result.add('_', '_');
      break;
    default:
      result.add('\t', '\r');
      for (const char32_t c : {0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF})
        result.add(c, c);
      result.add(0x2000, 0x200A);
  }
  return letter < 'a' ? result.complement() : result;
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) {
    while (!pattern.empty()) {
      const Utf8Step step = next_utf8(pattern);
      text_.push_back(step.valid ? step.code_point : U'\uFFFD');
      pattern.remove_prefix(step.length);
    }
  }

  Result<Expression> run() {
    CACHALOT_TRY(Expression result, choice(0));
    if (at_ < text_.size()) return error("a ')' that closes nothing");
    return result;
  }

 private:
  std::u32string text_;
  size_t at_ = 0;

  tl::unexpected<Error> error(std::string_view what) const {
    return fail("column {}: {}", at_ + 1, what);
  }
  bool peek(char32_t c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char32_t c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }

  Result<Expression> choice(int depth) {
    if (depth > kMostGroups) return error("groups are nested too deeply");
    Expression result{.kind = Expression::kChoice, .set = {}, .parts = {}};
    do {
      CACHALOT_TRY(Expression part, sequence(depth));
      result.parts.push_back(std::move(part));
    } while (take('|'));
    return result;
  }

  Result<Expression> sequence(int depth) {
    Expression result;
    while (at_ < text_.size() && !peek('|') && !peek(')')) {
      CACHALOT_TRY(Expression part, atom(depth));
      CACHALOT_OK(quantify(part));
      result.parts.push_back(std::move(part));
    }
    return result;
  }

  static Expression one_of(CodePoints set) {
    return {.kind = Expression::kSet, .set = std::move(set), .parts = {}};
  }

  Result<Expression> atom(int depth) {
    const char32_t c = text_[at_];
    if (c == '*' || c == '+' || c == '?') return error("a repetition of nothing");
    if (c == '{' && counts(at_)) return error("a repetition of nothing");
    if (c == '(') return group(depth);
    if (c == '[') {
      CACHALOT_TRY(CodePoints set, bracketed());
      return one_of(std::move(set));
    }
    if (c == '\\') {
      CACHALOT_TRY(CodePoints set, escape(false));
      return one_of(std::move(set));
    }
    ++at_;
    if (c == '^') return one_of(CodePoints(kTextStart, kTextStart));
    if (c == '$') return one_of(CodePoints(kTextEnd, kTextEnd));
    if (c == '.') {
      CodePoints breaks = CodePoints::of("\n\r");
      breaks.add(0x2028, 0x2029);
      return one_of(breaks.complement());
    }
    return one_of(CodePoints(c, c));
  }

  Result<Expression> group(int depth) {
    ++at_;
    if (take('?')) {
      if (take('<')) {
        if (peek('=') || peek('!')) return error("lookbehind is not supported");
        while (at_ < text_.size() && !peek('>')) ++at_;
        if (!take('>')) return error("a group name without '>'");
      } else if (peek('=') || peek('!')) {
        return error("lookahead is not supported");
      } else if (!take(':')) {
        return error("expected (?: or (?<name> at the start of a group");
      }
    }
    CACHALOT_TRY(Expression result, choice(depth + 1));
    if (!take(')')) return error("a group without ')'");
    return result;
  }

  // Whether {m}, {m,} or {m,n} stands at `at`.
  bool counts(size_t at) const {
    const size_t end = text_.find(U'}', at);
    if (end == text_.npos || end == at + 1) return false;
    return std::all_of(text_.begin() + static_cast<ptrdiff_t>(at) + 1,
                       text_.begin() + static_cast<ptrdiff_t>(end),
                       [](char32_t c) { return c == ',' || (c >= '0' && c <= '9'); }) &&
           text_[at + 1] != ',';
  }

  Result<int> count() {
    int64_t result = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      result = std::min<int64_t>(result * 10 + (text_[at_] - '0'), kMostRepetitions + 1);
      ++at_;
    }
    if (result > kMostRepetitions)
      return error(fmt::format("more than {} repetitions", kMostRepetitions));
    return static_cast<int>(result);
  }

  Status quantify(Expression& part) {
    int least = 0, most = -1;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (peek('{') && counts(at_)) {
      ++at_;
      CACHALOT_TRY(least, count());
      most = least;
      if (take(',')) {
        most = -1;
        if (!peek('}')) {
          CACHALOT_TRY(most, count());
        }
      }
      if (!take('}')) return error("expected {m}, {m,} or {m,n}");
      if (most >= 0 && most < least) return error("a repetition whose limits are reversed");
    } else {
      return {};
    }
    take('?');  // laziness changes which match is found, not what matches
    if (peek('*') || peek('+') || peek('?') || (peek('{') && counts(at_)))
      return error("a repetition of a repetition");
    Expression inner = std::move(part);
    part = {.kind = Expression::kRepeat, .set = {}, .parts = {}, .least = least, .most = most};
    part.parts.push_back(std::move(inner));
    return {};
  }

  Result<char32_t> hex(int least, int most) {
    char32_t result = 0;
    int digits = 0;
    for (; digits < most && at_ < text_.size(); ++digits, ++at_) {
      const char32_t c = text_[at_];
      if (c >= '0' && c <= '9') {
        result = result * 16 + (c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        result = result * 16 + ((c | 0x20) - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits < least) return error(fmt::format("expected {} hexadecimal digits", least));
    return result;
  }

  Result<char32_t> unicode_escape() {
    if (take('{')) {
      CACHALOT_TRY(const char32_t c, hex(1, 6));
      if (!take('}')) return error("expected '}'");
      return c;
    }
    CACHALOT_TRY(const char32_t c, hex(4, 4));
    if (c < 0xD800 || c > 0xDBFF) return c;
    if (!take('\\') || !take('u')) return error("half of a surrogate pair");
    CACHALOT_TRY(const char32_t low, hex(4, 4));
    if (low < 0xDC00 || low > 0xDFFF) return error("half of a surrogate pair");
    return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  }

  Result<CodePoints> escape(bool in_class) {
    ++at_;
    if (at_ == text_.size()) return error("a '\\' at the end");
    const char32_t c = text_[at_++];
    const auto is = [c](std::u32string_view letters) { return letters.find(c) != letters.npos; };
    if (is(U"dDwWsS")) return class_of(c);
    char32_t one = c;
    if (c == 'n') one = '\n';
    if (c == 'r') one = '\r';
    if (c == 't') one = '\t';
    if (c == 'f') one = '\f';
    if (c == 'v') one = '\v';
    if (c == '0') one = 0;
    if (c == 'b' && in_class) one = '\b';
    if (c == 'x') {
      CACHALOT_TRY(one, hex(2, 2));
    } else if (c == 'u') {
      CACHALOT_TRY(one, unicode_escape());
    } else if (c == 'c') {
      const bool letter =
          at_ < text_.size() && (text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z';
      if (!letter) return error("expected a letter after \\c");
      one = text_[at_++] % 32;
    } else if (is(U"123456789k")) {
      --at_;
      return error("backreferences are not supported");
    } else if ((c == 'b' && !in_class) || c == 'B') {
      --at_;
      return error("word boundaries are not supported");
    } else if (is(U"pP")) {
      --at_;
      return error("\\p is not supported; use a class of ranges");
    } else if (one == c && c < 0x80 && (((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))) {
      --at_;
      return error("an escape that means nothing");
    }
    if (one > kLastCodePoint || (one >= 0xD800 && one < 0xE000)) return error("no code point");
    return CodePoints(one, one);
  }

  Result<CodePoints> class_item() {
    if (peek('\\')) return escape(true);
    const char32_t c = text_[at_++];
    return CodePoints(c, c);
  }

  static std::optional<char32_t> single(const CodePoints& set) {
    if (set.ranges().size() != 1 || set.ranges()[0].first != set.ranges()[0].last) return {};
    return set.ranges()[0].first;
  }

  Result<CodePoints> bracketed() {
    ++at_;
    const bool negated = take('^');
    CodePoints result;
    while (!peek(']')) {
      if (at_ == text_.size()) return error("a class without ']'");
      CACHALOT_TRY(const CodePoints first, class_item());
      if (peek('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        CACHALOT_TRY(const CodePoints last, class_item());
        if (!single(first) || !single(last)) return error("a range between classes");
        if (*single(first) > *single(last)) return error("a range whose ends are reversed");
        result.add(*single(first), *single(last));
      } else {
        result.add(first);
      }
    }
    ++at_;
    result = result.intersected(CodePoints::all());
    return negated ? result.complement() : result;
  }
};

// Expression -> automaton.
class Builder {
 public:
  // Errors: too large.
  Status add(const Expression& expression, int32_t from, int32_t to) {
    if (automaton.size() > 4 * kMostAutomatonStates)
      return fail("too complex: use shorter repetitions");
    switch (expression.kind) {
      case Expression::kSet:
        automaton.add_edge(from, expression.set, to);
        return {};
      case Expression::kChoice:
        for (const Expression& part : expression.parts) CACHALOT_OK(add(part, from, to));
        return {};
      case Expression::kSequence:
        for (const Expression& part : expression.parts) {
          const int32_t next = automaton.add_state();
          CACHALOT_OK(add(part, from, next));
          from = next;
        }
        automaton.add_epsilon(from, to);
        return {};
      case Expression::kRepeat:
        return repeat(expression, from, to);
    }
    return {};
  }

  NondeterministicAutomaton automaton;

 private:
  Status repeat(const Expression& expression, int32_t from, int32_t to) {
    const Expression& part = expression.parts[0];
    for (int i = 0; i < expression.least; ++i) {
      const int32_t next = automaton.add_state();
      CACHALOT_OK(add(part, from, next));
      from = next;
    }
    if (expression.most < 0) {
      const int32_t loop = automaton.add_state();
      automaton.add_epsilon(from, loop);
      automaton.add_epsilon(loop, to);
      return add(part, loop, loop);
    }
    for (int i = expression.least; i < expression.most; ++i) {
      automaton.add_epsilon(from, to);
      const int32_t next = automaton.add_state();
      CACHALOT_OK(add(part, from, next));
      from = next;
    }
    automaton.add_epsilon(from, to);
    return {};
  }
};

// From texts between kTextStart and kTextEnd to texts.
void strip_ends(Automaton& automaton) {
  const auto follow = [&](int32_t state, char32_t c) -> int32_t {
    for (const Automaton::Edge& edge : automaton.states[state].edges)
      if (edge.first <= c && c <= edge.last) return edge.target;
    return -1;
  };
  const int32_t first = follow(0, kTextStart);
  std::vector<bool> accepts;
  for (size_t i = 0; i < automaton.states.size(); ++i) {
    const int32_t end = follow(static_cast<int32_t>(i), kTextEnd);
    accepts.push_back(end >= 0 && automaton.states[end].accepts);
  }
  for (size_t i = 0; i < automaton.states.size(); ++i) {
    Automaton::State& state = automaton.states[i];
    state.accepts = accepts[i];
    std::erase_if(state.edges, [](const auto& edge) { return edge.first > kLastCodePoint; });
    for (Automaton::Edge& edge : state.edges) edge.last = std::min(edge.last, kLastCodePoint);
  }
  // The start is a state of its own, so that nothing leads back to it.
  automaton.states[0] = first < 0 ? Automaton::State{} : automaton.states[first];
}

}  // namespace

Result<Automaton> parse_regex(std::string_view pattern, Anchoring anchoring) {
  CACHALOT_TRY(const Expression expression, RegexParser(pattern).run());
  Builder builder;
  NondeterministicAutomaton& automaton = builder.automaton;
  const int32_t start = automaton.add_state(), begin = automaton.add_state(),
                middle = automaton.add_state(), end = automaton.add_state();
  CodePoints any = CodePoints::all();
  any.add(kTextStart, kTextEnd);
  // Around the expression: whatever it does not describe of (start) text (end).
  const bool whole = anchoring == Anchoring::kWhole;
  automaton.add_epsilon(start, begin);
  automaton.add_edge(start, CodePoints(kTextStart, kTextStart), begin);
  if (!whole) automaton.add_edge(begin, CodePoints::all(), begin);
  const int32_t last = automaton.add_state();
  automaton.add_epsilon(middle, last);
  automaton.add_edge(middle, CodePoints(kTextEnd, kTextEnd), end);
  if (!whole) automaton.add_edge(last, CodePoints::all(), last);
  automaton.add_edge(last, CodePoints(kTextEnd, kTextEnd), end);
  automaton.add_epsilon(middle, end);
  CACHALOT_OK(builder.add(expression, begin, middle));
  CACHALOT_TRY(Automaton result, automaton.determinised(start, end));
  strip_ends(result);
  if (!result.accepts_something()) return fail("no text matches it");
  return result;
}

}  // namespace cachalot
