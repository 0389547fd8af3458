// The byte-level alphabet of GPT-2's tokenizer: one printable character per byte, so that a
// vocabulary of arbitrary bytes can be written as text.
//
// Bytes that are printable Latin-1 (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for themselves; the
// other 68, in ascending order, are U+0100, U+0101, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cachalot {

char32_t byte_to_letter(uint8_t byte);

std::optional<uint8_t> letter_to_byte(char32_t letter);

// The bytes that a vocabulary spelling stands for. A spelling with a character outside the alphabet
// stands for its own UTF-8 bytes as a whole, which is how Hugging Face's decoder reads it.
void append_spelled_bytes(std::string_view spelling, std::string& out);

}  // namespace cachalot
