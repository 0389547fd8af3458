// UTF-8 by the rule every part of the tokenizer shares: what is not well formed is cut into maximal
// subparts (Unicode 16, section 3.9, table 3-8), each of which decodes to one U+FFFD.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cachalot {

struct Utf8Step {
  char32_t code_point = 0;  // meaningful only if valid
  size_t length = 0;        // bytes of the character or of the maximal subpart, at least 1
  bool valid = false;
  bool incomplete = false;  // not valid, but the text ended before anything was wrong
};

// The character at the start of `text`, which is not empty.
Utf8Step next_utf8(std::string_view text);

// The length of the longest well-formed start of `text`.
size_t valid_utf8_prefix(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Appends `text` with each maximal ill-formed subpart as one U+FFFD.
void append_with_replacements(std::string_view text, std::string& out);

}  // namespace cachalot
