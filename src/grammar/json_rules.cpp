#include "grammar/json_rules.h"

#include <utility>

namespace cachalot {

JsonRules::JsonRules(GrammarBuilder& builder, std::vector<std::string> forbidden)
    : builder_(builder), texts_(builder), forbidden_(std::move(forbidden)) {}

int32_t JsonRules::space() {
  if (space_) return *space_;
  space_ = builder_.add_rule("a space");
  const int32_t start = builder_.start(*space_), end = builder_.add_node();
  builder_.set_final(start);
  builder_.set_final(end);
  builder_.add_bytes(start, ' ', ' ', end);
  int32_t at = builder_.text(start, "\n");
  for (int i = 0; i <= kMostIndentation; ++i) {
    builder_.set_final(at);
    const int32_t next = builder_.add_node();
    builder_.add_bytes(at, ' ', ' ', next);
    builder_.add_bytes(at, '\t', '\t', next);
    at = next;
  }
  return *space_;
}

Result<int32_t> JsonRules::quoted(int32_t from, const Automaton& automaton, Spelling spelling) {
  from = builder_.text(from, "\"");
  if (forbidden_.empty()) return builder_.text(texts_.add(from, automaton, spelling), "\"");
  CACHALOT_TRY(const Automaton rest, intersection(automaton, texts_without(forbidden_)));
  return builder_.text(texts_.add(from, rest, spelling), "\"");
}

int32_t JsonRules::string() {
  if (string_) return *string_;
  string_ = builder_.add_rule("a string");
  const int32_t text = texts_.add(builder_.text(builder_.start(*string_), "\""),
                                  texts_without(forbidden_), Spelling::kJsonEscapes);
  builder_.set_final(builder_.text(text, "\""));
  return *string_;
}

// `least` is 0 or 1.
int32_t JsonRules::digits(int32_t from, int least, int most) {
  const int32_t end = builder_.add_node();
  if (least == 0) builder_.add_empty(from, end);
  for (int i = 0; i < most; ++i) {
    const int32_t next = builder_.add_node();
    builder_.add_bytes(from, '0', '9', next);
    builder_.add_empty(next, end);
    from = next;
  }
  return end;
}

int32_t JsonRules::number() {
  if (number_) return *number_;
  number_ = builder_.add_rule("a number");
  const int32_t start = builder_.start(*number_);
  const int32_t unsigned_part = builder_.text(start, "-");
  builder_.add_empty(start, unsigned_part);
  const int32_t whole = builder_.text(unsigned_part, "0");
  const int32_t first = builder_.add_node();
  builder_.add_bytes(unsigned_part, '1', '9', first);
  builder_.add_empty(digits(first, 0, kMostDigits - 1), whole);
  const int32_t fraction = digits(builder_.text(whole, "."), 1, kMostDigits);
  builder_.add_empty(whole, fraction);
  const int32_t mark = builder_.add_node(), exponent = builder_.add_node();
  for (const char letter : {'e', 'E'})
    builder_.add_bytes(fraction, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), mark);
  builder_.add_empty(mark, exponent);
  builder_.add_bytes(mark, '+', '+', exponent);
  builder_.add_bytes(mark, '-', '-', exponent);
  builder_.set_final(fraction);
  builder_.set_final(digits(exponent, 1, 2));
  return *number_;
}

int32_t JsonRules::boolean() {
  if (boolean_) return *boolean_;
  boolean_ = builder_.add_rule("a boolean");
  for (const char* word : {"true", "false"})
    builder_.set_final(builder_.text(builder_.start(*boolean_), word));
  return *boolean_;
}

int32_t JsonRules::object() {
  if (object_) return *object_;
  object_ = builder_.add_rule("an object");
  const int32_t open = builder_.call(builder_.text(builder_.start(*object_), "{"), space());
  const int32_t key = builder_.call(open, string());
  const int32_t colon = builder_.call(builder_.text(key, ":"), space());
  const int32_t member = builder_.call(colon, value());
  builder_.add_call(builder_.call(builder_.text(member, ","), space()), string(), key);
  const int32_t close = builder_.call(member, space());
  builder_.set_final(builder_.text(close, "}"));
  builder_.set_final(builder_.text(open, "}"));
  return *object_;
}

int32_t JsonRules::array() {
  if (array_) return *array_;
  array_ = builder_.add_rule("an array");
  const int32_t open = builder_.call(builder_.text(builder_.start(*array_), "["), space());
  const int32_t element = builder_.call(open, value());
  builder_.add_call(builder_.call(builder_.text(element, ","), space()), value(), element);
  builder_.set_final(builder_.text(builder_.call(element, space()), "]"));
  builder_.set_final(builder_.text(open, "]"));
  return *array_;
}

int32_t JsonRules::value() {
  if (value_) return *value_;
  value_ = builder_.add_rule("any value");
  const int32_t start = builder_.start(*value_), end = builder_.add_node();
  builder_.set_final(end);
  for (const int32_t rule : {string(), number(), boolean(), object(), array()})
    builder_.add_call(start, rule, end);
  builder_.add_empty(builder_.text(start, "null"), end);
  return *value_;
}

Result<int32_t> JsonRules::literal(int32_t from, const Json& value) {
  if (const std::string* text = value.string())
    return quoted(from, one_of({text, 1}), Spelling::kJson);
  const bool is_object = value.object() != nullptr;
  if (!is_object && value.array() == nullptr) return builder_.text(from, value.dump());
  from = builder_.call(builder_.text(from, is_object ? "{" : "["), space());
  bool first = true;
  const auto separate = [&] {
    if (!std::exchange(first, false)) from = builder_.call(builder_.text(from, ","), space());
  };
  if (is_object) {
    for (const Json::Member& member : *value.object()) {
      separate();
      CACHALOT_TRY(from, quoted(from, one_of({&member.key, 1}), Spelling::kJson));
      from = builder_.call(builder_.text(from, ":"), space());
      CACHALOT_TRY(from, literal(from, member.value));
    }
  } else {
    for (const Json& element : *value.array()) {
      separate();
      CACHALOT_TRY(from, literal(from, element));
    }
  }
  return builder_.text(first ? from : builder_.call(from, space()), is_object ? "}" : "]");
}

}  // namespace cachalot
