// Rules of JSON text without a schema, shared by all that follow one.
//
// Between the parts of a document stands nothing, one space, or a line break with an indentation:
// what people and models write, and bounded, so that no answer runs away in blanks. Numbers have
// at most kMostDigits digits before and behind the point and two in the exponent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/json_value.h"
#include "grammar/text_rules.h"

namespace cachalot {

inline constexpr int kMostDigits = 40;
inline constexpr int kMostIndentation = 48;

class JsonRules {
 public:
  // `forbidden`: texts that must not occur in any string.
  explicit JsonRules(GrammarBuilder& builder, std::vector<std::string> forbidden = {});

  GrammarBuilder& builder() { return builder_; }
  TextRules& texts() { return texts_; }
  const std::vector<std::string>& forbidden() const { return forbidden_; }

  // Counts states of automata that a source asks for. False: it has asked for too many in all, and
  // should be refused before it takes long.
  bool spend(size_t states) { return (spent_ += states) <= kMostStatesInAll; }

  int32_t space();
  int32_t string();
  int32_t number();
  int32_t boolean();
  int32_t object();
  int32_t array();
  int32_t value();  // any

  // `"`, a text of the automaton, `"`. Returns the node behind it. Errors: together with the
  // forbidden texts, too many states.
  Result<int32_t> quoted(int32_t from, const Automaton& automaton, Spelling spelling);
  // Exactly this value, in any layout. Members stand in its order.
  Result<int32_t> literal(int32_t from, const Json& value);

 private:
  static constexpr size_t kMostStatesInAll = 20 * kMostAutomatonStates;
  GrammarBuilder& builder_;
  TextRules texts_;
  size_t spent_ = 0;
  std::vector<std::string> forbidden_;
  std::optional<int32_t> space_, string_, number_, boolean_, object_, array_, value_;

  int32_t digits(int32_t from, int least, int most);
};

}  // namespace cachalot
