#include "tokenizer/detokenizer.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// The length of `text` without an unfinished sequence at its end.
size_t complete_prefix(std::string_view text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t back = longest; back >= 1; --back) {
    const Utf8Step step = next_utf8(text.substr(text.size() - back));
    if (step.incomplete && step.length == back) return text.size() - back;
  }
  return text.size();
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DecodeOptions options)
    : tokenizer_(&tokenizer), options_(options) {}

std::string Detokenizer::push(int32_t id) {
  std::string text;
  if (options_.skip_special && tokenizer_->is_special(id)) return text;
  held_.append(tokenizer_->token_bytes(id));
  const size_t complete = complete_prefix(held_);
  append_with_replacements(std::string_view(held_).substr(0, complete), text);
  held_.erase(0, complete);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  append_with_replacements(held_, text);
  held_.clear();
  return text;
}

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   DecodeOptions options) {
  std::string bytes;
  for (const int32_t id : ids) {
    if (options.skip_special && tokenizer.is_special(id)) continue;
    bytes.append(tokenizer.token_bytes(id));
  }
  std::string text;
  append_with_replacements(bytes, text);
  return text;
}

}  // namespace cachalot
