// Tokenizer: text <-> token ids by the tokenizer.json of a Hugging Face model folder (byte-level
// BPE).
//
// Two ways to read control spellings such as "<｜User｜>" in text:
//   plain       they are ordinary characters. For text of users, tools and files.
//   compatible  they become their single id (added tokens are cut out first, leftmost and longest,
//               as the tokenizers library does). For text that a prompt template wrote.
// A prompt mixes both: see encode_pieces.
//
// Text need not be UTF-8. Bytes that are not well formed belong to no pattern of the pre-tokenizer:
// each run of them is a piece of its own, and since the vocabulary holds every single byte,
// decoding to bytes gives them back. Nothing is ever added (no BOS, no EOS).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

enum class EncodeMode { plain, compatible };

// A part of a prompt. Trusted text (of a template) may hold control spellings, each lying wholly
// within one piece; in untrusted text they stay characters.
struct Piece {
  std::string_view text;
  bool trusted = false;
};

class Tokenizer {
 public:
  using Mode = EncodeMode;

  // Reads tokenizer.json and, if it is there, tokenizer_config.json. Errors name the file and what
  // in it: not JSON, a model other than BPE, a normalizer, pre-tokenizer, post-processor, decoder
  // or pattern that is not known, ids that repeat or leave gaps, merges of unknown tokens, a
  // vocabulary without one of the 256 bytes.
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  // The same from the files' text; an empty config stands for a missing file.
  static Result<Tokenizer> parse(std::string_view tokenizer_json,
                                 std::string_view config_json = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids are 0 .. vocab_size() - 1, without gaps. The functions below take only such ids.
  int32_t vocab_size() const;

  // What the token decodes to; one token may hold a part of a UTF-8 sequence.
  std::string_view token_bytes(int32_t id) const;
  // Its spelling in the vocabulary (byte-level alphabet, "Ġthe"), for added tokens the text itself.
  std::string_view token_name(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view token_name) const;
  bool is_added(int32_t id) const;
  bool is_special(int32_t id) const;  // an added token flagged special

  // From tokenizer_config.json; absent if the file or the entry is.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

  // Safe to call from several threads at once.
  std::vector<int32_t> encode(std::string_view text, Mode mode) const;

  // The ids of the pieces' joined text. The text between two control tokens is encoded as a whole,
  // however many pieces it came in: template text and the user text beside it share tokens as they
  // would in one string.
  std::vector<int32_t> encode_pieces(std::span<const Piece> pieces) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace cachalot
