// Names for the numbers in shapes: which of them grow with the work, and what configuration keys
// the others are made of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "inspect/survey.h"

namespace cachalot {

// One extent of a tensor.
struct Dimension {
  std::string symbol;  // "B", "T", "patches"; empty: the number is always the same
  std::string name;    // "o_groups * o_lora_rank"; the symbol, or the number where nothing fits
  int64_t number = 0;  // at the size asked for
};

// The configuration's whole numbers under their flat keys, and as text all of it.
class ConfigKeys {
 public:
  explicit ConfigKeys(const ModelConfig& config);

  // An expression of keys, whole numbers, + - * / and brackets; KEY.size is how many numbers a list
  // has. nullopt where a key is no single whole number or a division leaves a rest.
  std::optional<int64_t> value_of(std::string_view expression) const;
  // The keys in a list of expressions, each once, in order.
  std::vector<std::string> keys_in(std::string_view expressions) const;
  // Of two keys for the same of backbone and draft head ("n_routed_experts" and
  // "dspark_n_routed_experts"): whether all keys are those of the one of the two.
  bool fits(std::string_view expressions, bool drafts) const;
  const std::vector<std::pair<std::string, std::string>>& texts() const { return texts_; }

 private:
  std::map<std::string, int64_t, std::less<>> numbers_;
  std::vector<std::pair<std::string, std::string>> texts_;  // in the configuration's order
};

// The pieces of a list, without the blanks around them.
std::vector<std::string> split_list(std::string_view list);

// The same operand's shape in surveys of different size.
struct ShapeSeries {
  Shape base, more_tokens, more_sequences, more_context, shown;
};

struct SurveySizes {
  SurveySize base, shown;
  int64_t vision_ratio = 1;
};

// A part's list (ops/part.h) in pieces, between commas: "EXPRESSION" names any extent of its value;
// "FIELD: EXPRESSION | EXPRESSION" the last extents of this field, in order, and comes before what
// is for all; 'TEXT' in place of an expression names whatever extent is there; "-: KEY" names
// nothing, the key only bears on the part.

// What the shape of an operation's field is made of. `expressions`: lists of the parts around it,
// from the innermost on. `drafts`: of the draft head, whose experts have keys of their own.
std::vector<Dimension> dimensions_of(const ShapeSeries& shapes, const SurveySizes& sizes,
                                     const ConfigKeys& keys, std::string_view field, bool drafts,
                                     const std::vector<std::string_view>& expressions);

}  // namespace cachalot
