#include "inspect/dimensions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "checkpoint/config_fields.h"

namespace cachalot {
namespace {

// Sums of products of keys, numbers and brackets.
class Evaluator {
 public:
  Evaluator(std::string_view text, const std::map<std::string, int64_t, std::less<>>& numbers)
      : text_(text), numbers_(numbers) {}

  std::optional<int64_t> value() {
    const int64_t result = sum();
    skip_blanks();
    if (!valid_ || at_ < text_.size()) return std::nullopt;
    return result;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char sign) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != sign) return false;
    ++at_;
    return true;
  }
  int64_t sum() {
    int64_t result = product();
    while (valid_) {
      if (take('+')) {
        result += product();
      } else if (take('-')) {
        result -= product();
      } else {
        return result;
      }
    }
    return 0;
  }
  int64_t product() {
    int64_t result = atom();
    while (valid_) {
      if (take('*')) {
        result *= atom();
      } else if (take('/')) {
        const int64_t by = atom();
        valid_ = valid_ && by != 0 && result % by == 0;
        if (valid_) result /= by;
      } else {
        return result;
      }
    }
    return 0;
  }
  int64_t atom() {
    if (take('(')) {
      const int64_t result = sum();
      valid_ = valid_ && take(')');
      return result;
    }
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    const auto key = numbers_.find(word);
    if (key != numbers_.end()) return key->second;
    valid_ = !word.empty() && word.size() < 10 &&
             std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    return valid_ ? std::stoll(std::string(word)) : 0;
  }

  std::string_view text_;
  const std::map<std::string, int64_t, std::less<>>& numbers_;
  size_t at_ = 0;
  bool valid_ = true;
};

std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(float value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}
std::string text_of(const std::optional<double>& value) { return value ? text_of(*value) : "none"; }

Dimension grown(std::string symbol, int64_t number) { return {symbol, symbol, number}; }

}  // namespace

ConfigKeys::ConfigKeys(const ModelConfig& config) {
  visit_fields(config, [&](const auto& member, std::string_view flat, ConfigSection,
                           std::string_view nested, Needed) {
    const std::string key(flat.empty() ? nested : flat);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, int64_t>) {
      numbers_.emplace(key, member);
    } else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>,
                                        std::vector<int64_t>>) {
      numbers_.emplace(key + ".size", std::ssize(member));
    }
    texts_.emplace_back(key, text_of(member));
  });
}

std::optional<int64_t> ConfigKeys::value_of(std::string_view expression) const {
  return Evaluator(expression, numbers_).value();
}

std::vector<std::string> ConfigKeys::keys_in(std::string_view expressions) const {
  std::vector<std::string> keys;
  std::string word;
  const auto finish = [&] {
    const bool known =
        std::ranges::any_of(texts_, [&](const auto& pair) { return pair.first == word; });
    if (known && std::ranges::find(keys, word) == keys.end()) keys.push_back(word);
    word.clear();
  };
  for (const char c : expressions) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else {
      finish();
    }
  }
  finish();
  return keys;
}

bool ConfigKeys::fits(std::string_view expressions, bool drafts) const {
  const std::string_view mark = "dspark_";
  return std::ranges::none_of(keys_in(expressions), [&](const std::string& key) {
    if (!drafts) return key.starts_with(mark);
    return std::ranges::any_of(texts_, [&](const auto& pair) {
      return pair.first.starts_with(mark) && pair.first.substr(mark.size()) == key;
    });
  });
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> pieces;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view piece = list.substr(0, comma);
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    if (!piece.empty()) pieces.emplace_back(piece);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return pieces;
}

namespace {

// Where an extent stands: how many that do not grow are behind it.
struct ExtentPlace {
  std::string_view field;
  bool drafts = false;
  size_t behind = 0;
};

std::vector<std::string> split_at_bars(std::string_view text) {
  std::vector<std::string> pieces;
  for (;;) {
    const size_t bar = text.find(" | ");
    pieces.emplace_back(text.substr(0, bar));
    if (bar == text.npos) return pieces;
    text.remove_prefix(bar + 3);
  }
}

// What the field's own pieces say of the extent; empty: nothing.
std::string own_name(int64_t number, const ConfigKeys& keys, const ExtentPlace& place,
                     std::string_view list) {
  for (const std::string& piece : split_list(list)) {
    const size_t colon = piece.find(": ");
    if (colon == piece.npos || piece.substr(0, colon) != place.field) continue;
    const std::vector<std::string> names = split_at_bars(std::string_view(piece).substr(colon + 2));
    if (place.behind >= names.size()) continue;
    const std::string& name = names[names.size() - 1 - place.behind];
    if (name.starts_with('\'')) return name.substr(1, name.size() - 2);
    if (keys.fits(name, place.drafts) && keys.value_of(name) == number) return name;
  }
  return "";
}

std::string name_of_extent(int64_t number, const ConfigKeys& keys, const ExtentPlace& place,
                           const std::vector<std::string_view>& expressions) {
  for (const std::string_view list : expressions) {
    std::string name = own_name(number, keys, place, list);
    if (!name.empty()) return name;
  }
  for (const std::string_view list : expressions) {
    for (const std::string& piece : split_list(list)) {
      if (piece.find(": ") != piece.npos || !keys.fits(piece, place.drafts)) continue;
      if (keys.value_of(piece) == number) return piece;
    }
  }
  return fmt::format("{}", number);
}

}  // namespace

std::vector<Dimension> dimensions_of(const ShapeSeries& shapes, const SurveySizes& sizes,
                                     const ConfigKeys& keys, std::string_view field, bool drafts,
                                     const std::vector<std::string_view>& expressions) {
  const int64_t batch = sizes.base.batch, shown_batch = sizes.shown.batch;
  const int64_t cells = sizes.vision_ratio * sizes.vision_ratio;
  std::vector<Dimension> result;
  std::vector<size_t> unnamed;
  const auto constant = [&](int64_t number) {
    unnamed.push_back(result.size());
    return Dimension{"", "", number};
  };
  for (int i = 0; i < shapes.base.rank(); ++i) {
    const int64_t extent = shapes.base[i], shown = shapes.shown[i];
    const bool by_tokens = shapes.more_tokens[i] != extent;
    const bool by_batch = shapes.more_sequences[i] != extent;
    const bool by_context = shapes.more_context[i] != extent;
    if (!by_tokens && !by_batch && !by_context) {
      const bool of_page = !result.empty() && result.back().symbol == "pages";
      result.push_back(of_page ? Dimension{"", "rows per page", extent} : constant(extent));
    } else if (by_tokens && by_batch) {
      result.push_back(grown("B", shown_batch));
      result.push_back(grown("T", sizes.shown.tokens));
      const int64_t rest = extent / (batch * sizes.base.tokens);
      if (rest != 1) result.push_back(constant(rest));
    } else if (by_tokens) {  // a picture's patches: the grid grows with the tokens
      const bool whole = extent == sizes.base.grid.patches();
      result.push_back(grown(whole ? "patches" : fmt::format("patches / {}", cells), shown));
    } else if (by_batch && by_context) {
      result.push_back(grown("B", shown_batch));
      result.push_back(grown("pages", shown / shown_batch));
    } else if (by_context) {
      result.push_back(grown("pages", shown));
    } else {
      result.push_back(grown("B", shown_batch));
      const int64_t rest = extent / batch;
      if (drafts && rest == keys.value_of("dspark_block_size")) {
        result.push_back({"", "dspark_block_size", rest});
      } else if (rest != 1) {
        result.push_back(constant(rest));
      }
    }
  }
  for (size_t i = 0; i < unnamed.size(); ++i) {
    Dimension& dimension = result[unnamed[i]];
    const ExtentPlace place{field, drafts, unnamed.size() - 1 - i};
    dimension.name = name_of_extent(dimension.number, keys, place, expressions);
  }
  return result;
}

}  // namespace cachalot
