// A fast string hash for tables in memory (not stable across versions, not for adversaries who can
// choose keys offline: tables that hold foreign text are bounded).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace cachalot {

inline uint64_t mix_bits(uint64_t a, uint64_t b) {
  const auto product =
      static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = text.size(), word;
  const char* data = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, data += 8) {
    std::memcpy(&word, data, 8);
    hash = mix_bits(hash, word);
  }
  word = 0;
  std::memcpy(&word, data, left);
  return mix_bits(hash, word);
}

}  // namespace cachalot
