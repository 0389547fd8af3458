// Input: tokenizer.json, a zero byte, text. The file loads or is refused; text survives encoding
// with it, and with a small file that the harness builds itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// The 256 bytes, one merge, one control token, DeepSeek's patterns.
std::string small_file() {
  using nlohmann::json;
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(byte_to_letter(static_cast<uint8_t>(byte)), letter);
    vocabulary[letter] = byte;
  }
  vocabulary["ab"] = 256;
  const auto split = [](const char* regex) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
  };
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return json{{"added_tokens", {{{"id", 257}, {"content", "<x>"}, {"special", true}}}},
              {"pre_tokenizer",
               {{"type", "Sequence"},
                {"pretokenizers", {split("\\p{N}{1,3}"), split("\\s+(?!\\S)|\\s+"), byte_level}}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}}}}
      .dump();
}

void round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (const EncodeMode mode : {EncodeMode::plain, EncodeMode::compatible}) {
    const auto ids = tokenizer.encode(text, mode);
    Detokenizer detokenizer(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.push(id);
    streamed += detokenizer.finish();
    if (streamed != decode(tokenizer, ids)) std::abort();
  }
  std::string bytes;
  for (const int32_t id : tokenizer.encode(text, EncodeMode::plain)) {
    bytes += tokenizer.token_bytes(id);
  }
  if (bytes != text) std::abort();
}

}  // namespace
}  // namespace cachalot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cachalot;
  static const Tokenizer small = Tokenizer::parse(small_file()).value();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  round_trip(small, text);
  if (const auto tokenizer = Tokenizer::parse(input.substr(0, end))) round_trip(*tokenizer, text);
  return 0;
}
