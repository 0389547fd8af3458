// What the tests of this directory share: fixtures and random text.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace cachalot {

inline std::string data_path(const std::string& name) {
  return std::string(CACHALOT_SOURCE_DIR "/tests/data/") + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline const Tokenizer& v41() {
  static const Tokenizer tokenizer = Tokenizer::load(data_path("tokenizers/v41")).value();
  return tokenizer;
}

using Ids = std::vector<int32_t>;

// Text in which every class of character, blanks of all kinds and runs are frequent.
inline std::string random_text(std::mt19937& random, int length) {
  static const std::vector<std::string> parts = {
      " ",       "  ",     "\t",     "\n",     "\r\n", "\xC2\x85", "\xC2\xA0",
      "\u180e",  "\u2003", "\u2028", "\u3000", "a",    "Zz",       "é",
      "e\u0301", "\u0301", "1",      "22",     "٣",    "Ⅷ",        "½",
      "!",       "/x",     "_",      "+",      "€",    "…",        "漢",
      "字",      "か",     "カ",     "・",     "゠",   "\u3099",   "\u3040",
      "龥",      "龦",     "〇",     "한",     "🎉",    "\u200d",   std::string("\0", 1),
      "\x1f",    "\u0378", "\ue000", "<",      "｜",   ">"};
  std::string text;
  for (int i = 0; i < length; ++i) {
    if (random() % 4 == 0) {
      char32_t c = random() % (random() % 2 == 0 ? 0x3000 : 0x110000);
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      append_utf8(c, text);
    } else {
      text += parts[random() % parts.size()];
    }
  }
  return text;
}

}  // namespace cachalot
