#include "tokenizer/engram_token_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

constexpr char32_t kLoneBlank = 0xE000;  // stands for a blank that stripping must not take

bool is_blank(char32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// ASCII and the CJK block decompose to themselves, hold no marks and (CJK) no case.
bool normalizes_to_itself(char32_t c) { return c < 0x80 || (c >= 0x4E00 && c <= 0x9FFF); }

std::u32string code_points(std::string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    result.push_back(step.code_point);
    at += step.length;
  }
  return result;
}

// NFKC followed by NFD is NFKD: both keep canonical equivalence, and NFKD is in form D already.
Result<std::u32string> decompose(std::string_view text) {
  std::u32string characters = code_points(text);
  if (std::all_of(characters.begin(), characters.end(), normalizes_to_itself)) return characters;
  utf8proc_uint8_t* decomposed = nullptr;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &decomposed, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(decomposed, &std::free);
  if (length < 0) return fail("\"{}\": cannot be normalized: {}", text, utf8proc_errmsg(length));
  return code_points({reinterpret_cast<const char*>(decomposed), static_cast<size_t>(length)});
}

// Without marks, in lower case, each run of blanks one blank.
std::u32string fold(const std::u32string& text) {
  std::u32string result;
  for (const char32_t c : text) {
    if ((UnicodeClasses::get().of(c) & char_class::kMark) != 0) continue;
    if (!is_blank(c)) {
      result.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    } else if (result.empty() || result.back() != ' ') {
      result.push_back(' ');
    }
  }
  return result;
}

std::string strip(std::u32string text) {
  if (text == U" ") text = kLoneBlank;
  const auto inner = [](char32_t c) {
    return (UnicodeClasses::get().of(c) & char_class::kWhiteSpace) == 0;
  };
  const auto begin = std::find_if(text.begin(), text.end(), inner);
  const auto end = std::find_if(text.rbegin(), std::make_reverse_iterator(begin), inner).base();
  std::string result;
  for (auto at = begin; at != end; ++at) append_utf8(*at == kLoneBlank ? U' ' : *at, result);
  return result;
}

Result<std::string> key_of(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view text = tokenizer.token_bytes(id);
  if (valid_utf8_prefix(text) != text.size() ||
      text.find(kReplacementCharacter) != std::string_view::npos) {
    return std::string(tokenizer.token_name(id));
  }
  CACHALOT_TRY(const std::u32string decomposed, decompose(text));
  std::string key = strip(fold(decomposed));
  return key.empty() ? std::string(text) : std::move(key);
}

}  // namespace

Result<EngramTokenMap> engram_token_map(const Tokenizer& tokenizer) {
  EngramTokenMap map;
  map.class_of.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, int32_t> classes;
  classes.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    CACHALOT_TRY(std::string key, key_of(tokenizer, id));
    const auto next = static_cast<int32_t>(classes.size());
    map.class_of.push_back(classes.try_emplace(std::move(key), next).first->second);
  }
  map.class_count = static_cast<int32_t>(classes.size());
  return map;
}

}  // namespace cachalot
