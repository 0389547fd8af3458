#include "tokenizer/tokenizer.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/json_kind.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace cachalot {

using nlohmann::json;

namespace {

// Below this many bytes a cache costs more than it saves.
constexpr size_t kCachedTextBytes = 2048;

struct MarkIds {
  std::optional<int32_t> bos, eos, pad;
};

// Normalizer: none. Decoder: ByteLevel. Post-processor: none or ByteLevel, which moves offsets
// only.
Status check_components(const json& file) {
  const json normalizer = file.value("normalizer", json());
  const bool is_empty_sequence =
      kind_of(normalizer) == "Sequence" && normalizer.value("normalizers", json()) == json::array();
  if (!normalizer.is_null() && !is_empty_sequence) {
    return fail("normalizer: {} is not supported, expected none", dump_text(normalizer));
  }
  const std::string decoder = kind_of(file.value("decoder", json()));
  if (decoder != "ByteLevel")
    return fail("decoder: {} is not supported, expected ByteLevel", decoder);
  const std::string post = kind_of(file.value("post_processor", json()));
  if (post != "ByteLevel" && post != "null") {
    return fail("post_processor: {} is not supported, expected ByteLevel or none", post);
  }
  return {};
}

Result<std::optional<int32_t>> mark_id(const json& config, const char* key,
                                       const Vocabulary& vocabulary) {
  json value = config.value(key, json());
  if (value.is_object()) value = value.value("content", json());
  if (value.is_null()) return std::nullopt;
  if (!value.is_string())
    return fail("{}: expected a token's text, found {}", key, dump_text(value));
  const auto id = vocabulary.find(value.get_ref<const std::string&>());
  if (!id) return fail("{}: {} is not a token of tokenizer.json", key, dump_text(value));
  return id;
}

Result<MarkIds> read_config(std::string_view text, const Vocabulary& vocabulary) {
  MarkIds ids;
  if (text.empty()) return ids;
  // Nothing of use nests as deep as this; what does is left out before anything recurses into it.
  const auto shallow = [](int depth, json::parse_event_t, const json&) { return depth <= 8; };
  const json config = json::parse(text.begin(), text.end(), shallow, false);
  if (!config.is_object()) return fail("not a JSON object");
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    const json value = config.value(key, json(false));
    if (value != false && !value.is_null()) {
      return fail("{}: expected false, found {}: the chat format writes these tokens itself", key,
                  dump_text(value));
    }
  }
  CACHALOT_TRY(ids.bos, mark_id(config, "bos_token", vocabulary));
  CACHALOT_TRY(ids.eos, mark_id(config, "eos_token", vocabulary));
  CACHALOT_TRY(ids.pad, mark_id(config, "pad_token", vocabulary));
  return ids;
}

}  // namespace

struct Tokenizer::Parts {
  Vocabulary vocabulary;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  BytePairEncoder encoder;
  MarkIds marks;
  mutable WordCachePool caches;  // locks; changes no result

  void encode_text(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_words(std::span<const std::string_view> words, std::vector<int32_t>& ids) const;
  void encode_between(std::string_view text, std::span<const AddedTokenMatch> matches,
                      std::vector<int32_t>& ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  CACHALOT_TRY(const MappedFile file, MappedFile::open(folder / "tokenizer.json"));
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string config;
  const auto config_path = folder / "tokenizer_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(config_path, ignored)) {
    CACHALOT_TRY(config, read_text_file(config_path));
    if (config.empty()) return fail("{}: empty file", config_path.string());
  }
  auto tokenizer = parse(text, config);
  if (!tokenizer) return fail(tokenizer.error().in(folder.string()));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json) {
  auto parts = [&]() -> Result<std::unique_ptr<Parts>> {
    CACHALOT_TRY(const TokenizerFile file, TokenizerFile::parse(tokenizer_json));
    CACHALOT_OK(check_components(file.rest));
    CACHALOT_TRY(PreTokenizer pre_tokenizer,
                 PreTokenizer::create(file.rest.value("pre_tokenizer", json())));
    CACHALOT_TRY(Vocabulary vocabulary, Vocabulary::create(file));
    CACHALOT_TRY(BytePairEncoder encoder, BytePairEncoder::create(file, vocabulary));
    return std::unique_ptr<Parts>(new Parts{std::move(vocabulary),
                                            AddedTokens(file.added),
                                            std::move(pre_tokenizer),
                                            std::move(encoder),
                                            {},
                                            {}});
  }();
  if (!parts) return fail(parts.error().in("tokenizer.json"));
  auto marks = read_config(config_json, (*parts)->vocabulary);
  if (!marks) return fail(marks.error().in("tokenizer_config.json"));
  (*parts)->marks = *marks;
  return Tokenizer(std::move(*parts));
}

int32_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

namespace {
void check_id(int32_t id, int32_t size) {
  CACHALOT_CHECK(id >= 0 && id < size, "token id {} of a vocabulary of {}", id, size);
}
}  // namespace

std::string_view Tokenizer::token_bytes(int32_t id) const {
  check_id(id, vocab_size());
  return parts_->vocabulary.bytes(id);
}

std::string_view Tokenizer::token_name(int32_t id) const {
  check_id(id, vocab_size());
  return parts_->vocabulary.name(id);
}

bool Tokenizer::is_added(int32_t id) const {
  check_id(id, vocab_size());
  return parts_->vocabulary.is_added(id);
}

bool Tokenizer::is_special(int32_t id) const {
  check_id(id, vocab_size());
  return parts_->vocabulary.is_special(id);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token_name) const {
  return parts_->vocabulary.find(token_name);
}

std::optional<int32_t> Tokenizer::bos_id() const { return parts_->marks.bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->marks.eos; }
std::optional<int32_t> Tokenizer::pad_id() const { return parts_->marks.pad; }

void Tokenizer::Parts::encode_words(std::span<const std::string_view> words,
                                    std::vector<int32_t>& ids) const {
  WordCachePool::Lease lease(caches);
  for (const std::string_view word : words) {
    if (word.size() > WordCache::kMaxBytes) {
      encoder.encode(word, ids);
      continue;
    }
    const WordCache::Key key(word);
    if (const auto known = lease.cache().find(key); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      continue;
    }
    const size_t start = ids.size();
    encoder.encode(word, ids);
    lease.cache().put(key, std::span(ids).subspan(start));
  }
}

void Tokenizer::Parts::encode_text(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<std::string_view> words;
  pre_tokenizer.split(text, words);
  if (text.size() >= kCachedTextBytes) return encode_words(words, ids);
  for (const std::string_view word : words) encoder.encode(word, ids);
}

void Tokenizer::Parts::encode_between(std::string_view text,
                                      std::span<const AddedTokenMatch> matches,
                                      std::vector<int32_t>& ids) const {
  size_t done = 0;
  for (const AddedTokenMatch& match : matches) {
    encode_text(text.substr(done, match.begin - done), ids);
    ids.push_back(match.id);
    done = match.end;
  }
  encode_text(text.substr(done), ids);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Mode mode) const {
  const Piece piece{text, mode == Mode::compatible};
  return encode_pieces({&piece, 1});
}

std::vector<int32_t> Tokenizer::encode_pieces(std::span<const Piece> pieces) const {
  std::vector<AddedTokenMatch> matches;
  std::string joined;
  size_t base = 0;
  for (const Piece& piece : pieces) {
    if (piece.trusted) parts_->added.find(piece.text, base, matches);
    base += piece.text.size();
    if (pieces.size() > 1) joined.append(piece.text);
  }
  const std::string_view text = pieces.size() == 1 ? pieces[0].text : std::string_view(joined);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 1);
  parts_->encode_between(text, matches, ids);
  return ids;
}

}  // namespace cachalot
