#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> letter_of{};
  std::array<int16_t, 0x144> byte_of{};  // -1: not a letter of the alphabet

  constexpr Alphabet() {
    for (int16_t& byte : byte_of) byte = -1;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      letter_of[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      byte_of[letter_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_letter(uint8_t byte) { return kAlphabet.letter_of[byte]; }

std::optional<uint8_t> letter_to_byte(char32_t letter) {
  if (letter >= kAlphabet.byte_of.size() || kAlphabet.byte_of[letter] < 0) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.byte_of[letter]);
}

void append_spelled_bytes(std::string_view spelling, std::string& out) {
  const size_t start = out.size();
  for (std::string_view rest = spelling; !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    const auto byte = step.valid ? letter_to_byte(step.code_point) : std::nullopt;
    if (!byte) {
      out.resize(start);
      out.append(spelling);
      return;
    }
    out.push_back(static_cast<char>(*byte));
    rest.remove_prefix(step.length);
  }
}

}  // namespace cachalot
