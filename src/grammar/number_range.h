// Decimal numbers between bounds, as automata over their digits: exact, whatever the number of
// digits.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/json_value.h"
#include "grammar/automaton.h"

namespace cachalot {

struct Decimal {
  bool negative = false;
  std::string whole;     // without leading zeros, "0" for none
  std::string fraction;  // without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// A JSON number. Absent: more than kMostDigits digits before or behind the point.
std::optional<Decimal> decimal_of(const Json& number);

struct Bound {
  Decimal value;
  bool exclusive = false;
};

std::string text_of(const Decimal& decimal);

// Negative, zero or positive: a < b, a = b or a > b.
int compare(const Decimal& a, const Decimal& b);

// Numbers like -12 or -1.25, without exponent, with at most `fraction_digits` digits behind the
// point.
struct NumberRange {
  std::optional<Bound> least, most;
  int fraction_digits = 0;
};
Result<Automaton> numbers_in(const NumberRange& range);

// Integers that `divisor` divides. Errors: a divisor beyond the bound on states.
Result<Automaton> multiples_of(int64_t divisor);

}  // namespace cachalot
