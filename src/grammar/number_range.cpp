#include "grammar/number_range.h"

#include <algorithm>
#include <array>
#include <map>

#include "grammar/json_rules.h"

namespace cachalot {
namespace {

CodePoints digits(int first, int last) {
  CodePoints result;
  if (first <= last)
    result.add(static_cast<char32_t>('0' + first), static_cast<char32_t>('0' + last));
  return result;
}

// Numbers without a sign between two bounds that are not negative.
class UnsignedRange {
 public:
  UnsignedRange(NondeterministicAutomaton& automaton, const Bound& least, const Bound& most,
                int fraction_digits, int32_t end)
      : automaton_(automaton),
        least_(least),
        most_(most),
        fraction_digits_(fraction_digits),
        end_(end) {}

  void add(int32_t from) {
    const std::string &low = least_.value.whole, &high = most_.value.whole;
    for (size_t length = low.size(); length <= high.size(); ++length) {
      add_whole(from, length, 0, length == low.size(), length == high.size());
      lengths_.clear();
    }
  }

 private:
  NondeterministicAutomaton& automaton_;
  const Bound &least_, &most_;
  int fraction_digits_;
  int32_t end_;
  std::map<std::array<int, 3>, int32_t> lengths_, fractions_;

  // The digits of a whole part of `length` from place `at` on. `low`, `high`: those before are
  // those of the bound.
  void add_whole(int32_t from, size_t length, size_t at, bool low, bool high) {
    if (at == length) {
      automaton_.add_epsilon(from, fraction(0, low, high));
      return;
    }
    const int first = low ? least_.value.whole[at] - '0' : at == 0 && length > 1 ? 1 : 0;
    const int last = high ? most_.value.whole[at] - '0' : 9;
    const auto branch = [&](int a, int b, bool stays_low, bool stays_high) {
      if (a > b) return;
      const auto [entry, added] = lengths_.try_emplace(
          {static_cast<int>(at) + 1, stays_low ? 1 : 0, stays_high ? 1 : 0}, 0);
      if (added) entry->second = automaton_.add_state();
      automaton_.add_edge(from, digits(a, b), entry->second);
      if (added) add_whole(entry->second, length, at + 1, stays_low, stays_high);
    };
    split(first, last, low, high, branch);
  }

  template <class Branch>
  static void split(int first, int last, bool low, bool high, Branch branch) {
    if (first > last) return;
    if (low && high && first == last) return branch(first, last, true, true);
    if (low) branch(first, first, true, false);
    if (high) branch(last, last, false, true);
    branch(first + low, last - high, false, false);
  }

  // The state behind `count` digits of the fraction.
  int32_t fraction(int count, bool low, bool high) {
    const auto [entry, added] = fractions_.try_emplace({count, low ? 1 : 0, high ? 1 : 0}, 0);
    if (!added) return entry->second;
    const int32_t state = automaton_.add_state();
    entry->second = state;
    const std::string &f = least_.value.fraction, &g = most_.value.fraction;
    const auto done = static_cast<size_t>(count);
    const bool enough = !low || (done >= f.size() && !least_.exclusive);
    const bool not_too_much = !high || done < g.size() || !most_.exclusive;
    if (enough && not_too_much) automaton_.add_epsilon(state, end_);
    if (count == fraction_digits_) return state;
    int32_t from = state;
    if (count == 0) {
      from = automaton_.add_state();
      automaton_.add_edge(state, CodePoints('.', '.'), from);
    }
    const int first = low && done < f.size() ? f[done] - '0' : 0;
    const int last = high ? (done < g.size() ? g[done] - '0' : 0) : 9;
    split(first, last, low, high, [&](int a, int b, bool stays_low, bool stays_high) {
      if (a <= b)
        automaton_.add_edge(from, digits(a, b), fraction(count + 1, stays_low, stays_high));
    });
    return state;
  }
};

Decimal largest() { return {false, std::string(kMostDigits, '9'), ""}; }

Decimal negated(Decimal value) {
  value.negative = !value.negative && !value.is_zero();
  return value;
}

}  // namespace

std::optional<Decimal> decimal_of(const Json& number) {
  std::string text = number.dump();
  Decimal result;
  if (text.starts_with('-')) {
    result.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string all = text.substr(0, point);
  if (point < text.size()) all += text.substr(point + 1);
  int64_t place = static_cast<int64_t>(point) + exponent;  // of the point among all digits
  if (place < -400 || place > 400) return std::nullopt;
  if (place < 0) {
    all.insert(0, static_cast<size_t>(-place), '0');
    place = 0;
  }
  if (place > std::ssize(all)) all.append(static_cast<size_t>(place) - all.size(), '0');
  result.whole = all.substr(0, static_cast<size_t>(place));
  result.fraction = all.substr(static_cast<size_t>(place));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole.push_back('0');
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  result.negative = result.negative && !result.is_zero();
  if (std::ssize(result.whole) > kMostDigits || std::ssize(result.fraction) > kMostDigits)
    return std::nullopt;
  return result;
}

std::string text_of(const Decimal& decimal) {
  return fmt::format("{}{}{}{}", decimal.negative ? "-" : "", decimal.whole,
                     decimal.fraction.empty() ? "" : ".", decimal.fraction);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = a.whole.size() != b.whole.size() ? (a.whole.size() < b.whole.size() ? -1 : 1)
                                               : a.whole.compare(b.whole);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return a.negative ? -order : order;
}

Result<Automaton> numbers_in(const NumberRange& range) {
  const Bound zero{{false, "0", ""}, false};
  const Bound least = range.least.value_or(Bound{negated(largest()), false});
  const Bound most = range.most.value_or(Bound{largest(), false});
  NondeterministicAutomaton automaton;
  const int32_t start = automaton.add_state(), end = automaton.add_state();
  const auto add = [&](int32_t from, const Bound& low, const Bound& high) {
    const int order = compare(low.value, high.value);
    if (order > 0 || (order == 0 && (low.exclusive || high.exclusive))) return;
    UnsignedRange(automaton, low, high, range.fraction_digits, end).add(from);
  };
  if (!most.value.negative) add(start, least.value.negative ? zero : least, most);
  if (least.value.negative) {
    const int32_t minus = automaton.add_state();
    automaton.add_edge(start, CodePoints('-', '-'), minus);
    const Bound low{negated(most.value), most.exclusive},
        high{negated(least.value), least.exclusive};
    // No -0.
    add(minus, most.value.negative ? low : Bound{zero.value, true}, high);
  }
  return automaton.determinised(start, end);
}

Result<Automaton> multiples_of(int64_t divisor) {
  if (divisor < 1 || divisor >= static_cast<int64_t>(kMostAutomatonStates) - 2)
    return fail("expected a whole number from 1 to {}, found {}", kMostAutomatonStates - 3,
                divisor);
  // State 0 is the start, 1 the one behind a sign, 2 + r that of remainder r.
  Automaton result;
  result.states.resize(static_cast<size_t>(divisor) + 2);
  for (size_t i = 0; i < result.states.size(); ++i) {
    Automaton::State& state = result.states[i];
    if (i == 0) state.edges.push_back({'-', '-', 1});
    const int64_t remainder = i < 2 ? 0 : static_cast<int64_t>(i) - 2;
    for (int digit = 0; digit < 10; ++digit) {
      const auto c = static_cast<char32_t>('0' + digit);
      state.edges.push_back({c, c, static_cast<int32_t>(2 + (remainder * 10 + digit) % divisor)});
    }
    state.accepts = i == 2;
  }
  return result;
}

}  // namespace cachalot
