// The three patterns of DeepSeek's tokenizers (V3 to V4.1) as one hand-written pass, many
// times as fast as the patterns themselves, to which it is equal (pre_tokenizer_test.cpp).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cachalot {

// Whether `patterns`, the Split steps of a tokenizer.json in order, are those three.
bool is_deepseek_split(std::span<const std::string> patterns);

// Appends the pieces of `text`, which is well-formed UTF-8.
void deepseek_split(std::string_view text, std::vector<std::string_view>& pieces);

}  // namespace cachalot
