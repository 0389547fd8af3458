#include "grammar/schema_values.h"

#include <algorithm>
#include <array>

#include "grammar/number_range.h"
#include "grammar/regex_pattern.h"

namespace cachalot {
namespace {

// A narrower language than a format's own may be written: no leap days, no quoted local parts.
#define CACHALOT_DATE                                                                \
  "[12]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|" \
  "30)|02-(0[1-9]|1\\d|2[0-8]))"
#define CACHALOT_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define CACHALOT_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
#define CACHALOT_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

constexpr std::array<std::pair<std::string_view, const char*>, 10> kFormats = {{
    {"date", CACHALOT_DATE},
    {"time", CACHALOT_TIME},
    {"date-time", CACHALOT_DATE "T" CACHALOT_TIME},
    {"duration",
     "P(\\d{1,6}W|(\\d{1,6}Y)?(\\d{1,6}M)?\\d{1,6}D(T\\d{1,6}H(\\d{1,6}M)?(\\d{1,6}S)?)?|"
     "T(\\d{1,6}H)?(\\d{1,6}M)?\\d{1,6}S)"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email",
     "[A-Za-z0-9_%+-]{1,30}(\\.[A-Za-z0-9_%+-]{1,30})?@(" CACHALOT_LABEL "\\.){1,4}[A-Za-z]{2,10}"},
    {"ipv4", CACHALOT_BYTE "(\\." CACHALOT_BYTE "){3}"},
    {"ipv6", "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}"},
    {"hostname", CACHALOT_LABEL "(\\." CACHALOT_LABEL "){0,4}"},
    {"uri", "(https?|ftp)://" CACHALOT_LABEL "(\\." CACHALOT_LABEL
            "){0,4}(:[1-9]\\d{0,3})?(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\\?[A-Za-z0-9._~=&-]*)?"
            "(#[A-Za-z0-9._~-]*)?"},
}};

Status narrow(std::optional<Automaton>& whole, Result<Automaton> part, const std::string& where,
              size_t& states) {
  if (!part) return fail(part.error().in(where));
  states += part->states.size();
  if (whole) {
    part = intersection(*whole, *part);
    if (!part) return fail(part.error().in(where));
    states += part->states.size();
  }
  whole = std::move(*part);
  return {};
}

int64_t count_or(const Json& schema, const char* keyword, int64_t otherwise) {
  const Json* value = schema.find(keyword);
  return value ? *value->int64() : otherwise;
}

Result<std::optional<Bound>> bound(const SchemaLeaf& leaf, const char* plain, const char* strict,
                                   int sign) {
  std::optional<Bound> result;
  for (const bool exclusive : {false, true}) {
    const char* keyword = exclusive ? strict : plain;
    const Json* value = leaf.schema.find(keyword);
    if (!value) continue;
    const auto decimal = decimal_of(*value);
    if (!decimal) {
      // No number that is written reaches a huge bound.
      const double real = value->real() ? *value->real() : (value->dump()[0] == '-' ? -1e99 : 1e99);
      if (real * sign < -1e39) continue;
      return fail("{}/{}: bounds may have 40 digits before and behind the point, found {}",
                  leaf.pointer, keyword, value->dump().substr(0, 100));
    }
    const int order = result ? compare(*decimal, result->value) * sign : 1;
    if (order > 0 || (order == 0 && exclusive)) result = Bound{*decimal, exclusive};
  }
  return result;
}

// Ten to the power of -k, k from 0 to 15: k.
std::optional<int> power_of_tenth(const Decimal& divisor) {
  if (divisor.negative || divisor.is_zero() || divisor.fraction.size() > 15) return std::nullopt;
  const std::string digits = (divisor.whole == "0" ? "" : divisor.whole) + divisor.fraction;
  const size_t first = digits.find_first_not_of('0');
  if (digits.substr(first) != "1") return std::nullopt;
  return static_cast<int>(divisor.fraction.size());
}

}  // namespace

const char* format_pattern(std::string_view format) {
  const auto found = std::ranges::find(kFormats, format, &decltype(kFormats)::value_type::first);
  return found == kFormats.end() ? nullptr : found->second;
}

Result<StringConstraint> string_constraint(const SchemaLeaf& leaf, int64_t longest) {
  StringConstraint result;
  const auto each = [&](const char* keyword, auto use) -> Status {
    if (const Json* values = leaf.schema.find(keyword))
      for (const Json& value : *values->array()) CACHALOT_OK(use(*value.string()));
    return {};
  };
  CACHALOT_OK(each("pattern", [&](const std::string& pattern) {
    result.lengths_only = false;
    return narrow(result.automaton, parse_regex(pattern, Anchoring::kAnywhere),
                  leaf.pointer + "/pattern", result.states);
  }));
  CACHALOT_OK(each("format", [&](const std::string& format) -> Status {
    const char* pattern = format_pattern(format);
    if (!pattern) return {};
    result.lengths_only = false;
    return narrow(result.automaton, parse_regex(pattern, Anchoring::kWhole),
                  leaf.pointer + "/format", result.states);
  }));
  const int64_t least = count_or(leaf.schema, "minLength", 0);
  int64_t most = count_or(leaf.schema, "maxLength", -1);
  if (least == 0 && most < 0) return result;
  if (most >= 0 && most < least)
    return fail("{}: minLength {} is above maxLength {}", leaf.pointer, least, most);
  // Longer texts are not begun: the schema accepts the shorter ones too.
  most = std::min(most, std::max(least, longest));
  CACHALOT_OK(narrow(result.automaton, texts_of_length(least, most), leaf.pointer + "/maxLength",
                     result.states));
  return result;
}

Result<std::optional<Automaton>> number_constraint(const SchemaLeaf& leaf, bool integer) {
  NumberRange range;
  CACHALOT_TRY(range.least, bound(leaf, "minimum", "exclusiveMinimum", 1));
  CACHALOT_TRY(range.most, bound(leaf, "maximum", "exclusiveMaximum", -1));
  // As many digits as a double tells apart beside the bounds.
  size_t whole = 1, fraction = 0;
  for (const auto& side : {range.least, range.most}) {
    if (!side) continue;
    whole = std::max(whole, side->value.whole.size());
    fraction = std::max(fraction, side->value.fraction.size());
  }
  range.fraction_digits = static_cast<int>(std::max(fraction, whole < 14 ? 15 - whole : 1));
  std::vector<int64_t> divisors;
  if (const Json* values = leaf.schema.find("multipleOf")) {
    for (const Json& value : *values->array()) {
      const auto divisor = decimal_of(value);
      const auto tenth = divisor ? power_of_tenth(*divisor) : std::nullopt;
      const bool is_whole = divisor && divisor->fraction.empty() && divisor->whole.size() < 10;
      if (tenth) {
        range.fraction_digits = std::min(range.fraction_digits, *tenth);
      } else if (is_whole) {
        integer = true;
        divisors.push_back(divisor->negative ? -1 : std::stoll(divisor->whole));
      } else {
        return fail("{}/multipleOf: expected a whole number or 0.1, 0.01 and so on, found {}",
                    leaf.pointer, value.dump().substr(0, 100));
      }
    }
  }
  if (!range.least && !range.most && !leaf.schema.find("multipleOf") && !integer)
    return std::optional<Automaton>();
  if (integer) range.fraction_digits = 0;
  std::optional<Automaton> result;
  size_t states = 0;
  CACHALOT_OK(narrow(result, numbers_in(range), leaf.pointer, states));
  for (const int64_t divisor : divisors)
    CACHALOT_OK(narrow(result, multiples_of(divisor), leaf.pointer + "/multipleOf", states));
  return result;
}

}  // namespace cachalot
