#include "grammar/text_rules.h"

#include <algorithm>
#include <functional>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

constexpr std::pair<char32_t, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'},
                                                       {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'},
                                                       {'\t', 't'}, {'/', '/'}};

// Numbers of `count` digits in base 2^bits from `first` to `last`, as edges on digit ranges.
class DigitRange {
 public:
  // Adds edges for the digits first .. last at a place, counted from the end.
  using Emit =
      std::function<void(int32_t from, int place, uint32_t first, uint32_t last, int32_t to)>;

  DigitRange(GrammarBuilder& builder, int bits, Emit emit)
      : builder_(builder), bits_(bits), emit_(std::move(emit)) {}

  void add(int32_t from, int count, uint32_t first, uint32_t last, int32_t to) {
    if (count == 1) return emit_(from, 0, first, last, to);
    const uint32_t unit = uint32_t{1} << (bits_ * (count - 1));
    uint32_t low = first / unit, high = last / unit;
    if (low == high) return part(from, count, low, low, first % unit, last % unit, to);
    if (first % unit != 0) {
      part(from, count, low, low, first % unit, unit - 1, to);
      ++low;
    }
    if (last % unit != unit - 1) {
      part(from, count, high, high, 0, last % unit, to);
      --high;
    }
    if (low <= high) part(from, count, low, high, 0, unit - 1, to);
  }

 private:
  GrammarBuilder& builder_;
  int bits_;
  Emit emit_;

  void part(int32_t from, int count, uint32_t low, uint32_t high, uint32_t first, uint32_t last,
            int32_t to) {
    const int32_t next = builder_.add_node();
    emit_(from, count - 1, low, high, next);
    add(next, count - 1, first, last, to);
  }
};

void add_hex_digits(GrammarBuilder& builder, int32_t from, uint32_t first, uint32_t last,
                    int32_t to) {
  const auto add = [&](char zero, uint32_t low, uint32_t high) {
    if (low <= high)
      builder.add_bytes(from, static_cast<uint8_t>(zero + low), static_cast<uint8_t>(zero + high),
                        to);
  };
  add('0', first, std::min(last, 9u));
  for (const char ten : {'a', 'A'}) add(static_cast<char>(ten - 10), std::max(first, 10u), last);
}

std::string bytes_as_code_points(std::string_view bytes) {
  std::string result;
  for (const char byte : bytes) append_utf8(static_cast<uint8_t>(byte), result);
  return result;
}

}  // namespace

int32_t TextRules::add(int32_t from, const Automaton& automaton, Spelling spelling) {
  const int32_t to = builder_.add_node();
  std::vector<int32_t> nodes;
  for (size_t i = 0; i < automaton.states.size() && !builder_.full(); ++i)
    nodes.push_back(builder_.add_node());
  if (builder_.full()) return to;
  builder_.add_empty(from, nodes[0]);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Automaton::State& state = automaton.states[i];
    if (state.accepts) builder_.add_empty(nodes[i], to);
    std::map<int32_t, CodePoints> sets;
    for (const Automaton::Edge& edge : state.edges) sets[edge.target].add(edge.first, edge.last);
    for (const auto& [target, set] : sets) add(nodes[i], set, spelling, nodes[target]);
  }
  return to;
}

void TextRules::add(int32_t from, const CodePoints& set, Spelling spelling, int32_t to) {
  CodePoints plain(0, 0x7F), rest = set;
  if (spelling != Spelling::kRaw) plain = CodePoints(0x20, 0x7F).without(CodePoints::of("\"\\"));
  // What is a byte by itself needs no rule, unless it may be escaped as well.
  if (spelling != Spelling::kJsonEscapes) {
    const CodePoints single = set.intersected(plain);
    for (const auto& [first, last] : single.ranges())
      builder_.add_bytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to);
    rest = set.without(plain);
  }
  if (!rest.empty()) builder_.add_call(from, rule_of(rest, spelling), to);
}

int32_t TextRules::rule_of(const CodePoints& set, Spelling spelling) {
  const auto [entry, added] = rules_.try_emplace({set, spelling}, 0);
  if (!added) return entry->second;
  const int32_t rule = builder_.add_rule("a character");
  entry->second = rule;
  const int32_t from = builder_.start(rule), to = builder_.add_node();
  builder_.set_final(to);
  CodePoints raw = set.intersected(CodePoints::all());
  if (spelling != Spelling::kRaw) {
    raw = raw.without(CodePoints(0, 0x1F)).without(CodePoints::of("\"\\"));
    add_escapes(from, set, spelling, to);
  }
  for (const CodePoints::Range& range : raw.ranges()) add_utf8(from, range, to);
  return rule;
}

void TextRules::add_utf8(int32_t from, CodePoints::Range range, int32_t to) {
  constexpr struct {
    int continuations;
    uint8_t lead;
    char32_t last;
  } kLengths[] = {{0, 0, 0x7F}, {1, 0xC0, 0x7FF}, {2, 0xE0, 0xFFFF}, {3, 0xF0, kLastCodePoint}};
  char32_t least = 0;
  for (const auto& [continuations, lead, most] : kLengths) {
    const char32_t first = std::max(range.first, least), last = std::min(range.last, most);
    least = most + 1;
    if (first > last) continue;
    if (continuations == 0) {
      builder_.add_bytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to);
      continue;
    }
    const int top = continuations;
    const uint32_t top_mark = lead;
    DigitRange digits(builder_, 6,
                      [&](int32_t a, int place, uint32_t low, uint32_t high, int32_t b) {
                        const uint32_t mark = place == top ? top_mark : 0x80;
                        builder_.add_bytes(a, static_cast<uint8_t>(mark + low),
                                           static_cast<uint8_t>(mark + high), b);
                      });
    digits.add(from, continuations + 1, first, last, to);
  }
}

void TextRules::add_escapes(int32_t from, const CodePoints& set, Spelling spelling, int32_t to) {
  const bool anywhere = spelling == Spelling::kJsonEscapes;
  const int32_t escape = builder_.add_node(), hex = builder_.add_node();
  builder_.add_bytes(from, '\\', '\\', escape);
  builder_.add_bytes(escape, 'u', 'u', hex);
  CodePoints long_only = set;
  for (const auto& [code_point, letter] : kShortEscapes) {
    if (!set.contains(code_point) || (code_point == '/' && !anywhere)) continue;
    builder_.add_bytes(escape, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
    long_only = long_only.without(CodePoints(code_point, code_point));
  }
  const CodePoints controls(0, 0x1F), plane(0, 0xFFFF);
  const CodePoints spelled = anywhere ? set.intersected(plane) : long_only.intersected(controls);
  DigitRange digits(builder_, 4, [&](int32_t a, int, uint32_t low, uint32_t high, int32_t b) {
    add_hex_digits(builder_, a, low, high, b);
  });
  for (const auto& [first, last] : spelled.ranges()) digits.add(hex, 4, first, last, to);
  // Characters above the first plane are two escapes; only all of them at once.
  if (!anywhere || !set.contains(CodePoints(0x10000, kLastCodePoint))) return;
  const int32_t between = builder_.add_node();
  digits.add(hex, 4, 0xD800, 0xDBFF, between);
  digits.add(builder_.text(between, "\\u"), 4, 0xDC00, 0xDFFF, to);
}

int32_t TextRules::add_bytes_without(int32_t from, std::span<const std::string> patterns) {
  std::vector<std::string> wide;
  for (const std::string& pattern : patterns) wide.push_back(bytes_as_code_points(pattern));
  const Automaton automaton = texts_without(wide);
  const int32_t to = builder_.add_node();
  std::vector<int32_t> nodes;
  for (size_t i = 0; i < automaton.states.size(); ++i) nodes.push_back(builder_.add_node());
  builder_.add_empty(from, nodes[0]);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (automaton.states[i].accepts) builder_.add_empty(nodes[i], to);
    for (const Automaton::Edge& edge : automaton.states[i].edges)
      if (edge.first <= 0xFF)
        builder_.add_bytes(nodes[i], static_cast<uint8_t>(edge.first),
                           static_cast<uint8_t>(std::min<char32_t>(edge.last, 0xFF)),
                           nodes[edge.target]);
  }
  return to;
}

}  // namespace cachalot
