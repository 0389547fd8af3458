#include "tokenizer/tokenizer_file.h"

#include <array>
#include <utility>

namespace cachalot {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;

// Reads in one pass: vocabulary and merges, some 250,000 small values, go straight to their flat
// lists; the rest becomes a document. Unlike nlohmann's own reader it refuses repeated keys.
class Reader : public nlohmann::json_sax<json> {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  std::string error;

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(int64_t v) override { return state_ == kVocabulary ? token(v) : value(v); }
  bool number_unsigned(uint64_t v) override {
    if (state_ != kVocabulary) return value(v);
    return token(v > INT32_MAX ? -1 : static_cast<int64_t>(v));
  }
  bool number_float(double v, const std::string&) override { return value(v); }
  bool binary(binary_t&) override { return refuse("binary value"); }

  bool string(std::string& v) override {
    if (state_ == kMerges) return merge(v);
    if (state_ == kMergePair) return merge_half(v);
    return value(std::move(v));
  }

  bool start_object(size_t) override {
    if (state_ != kDocument) return misplaced();
    if (at("vocab")) {
      state_ = kVocabulary;
      return true;
    }
    return open(json::object());
  }

  bool key(std::string& name) override {
    if (state_ == kVocabulary) {
      pending_ = {offset(), static_cast<uint32_t>(name.size()), 0};
      file_.text.append(name);
      return true;
    }
    if (open_.back()->contains(name)) return refuse(fmt::format("key \"{}\" is given twice", name));
    keys_.back() = std::move(name);
    return true;
  }

  bool end_object() override { return end(); }

  bool start_array(size_t) override {
    if (state_ == kMerges) {
      state_ = kMergePair;
      halves_ = 0;
      return true;
    }
    if (state_ != kDocument) return misplaced();
    if (at("merges")) {
      state_ = kMerges;
      return true;
    }
    return open(json::array());
  }

  bool end_array() override {
    if (state_ != kMergePair) return end();
    if (halves_ != 2) return misplaced();
    file_.merges.push_back(pair_);
    state_ = kMerges;
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& e) override {
    return refuse(fmt::format("not valid JSON: {}", e.what()));
  }

 private:
  enum State { kDocument, kVocabulary, kMerges, kMergePair };

  uint32_t offset() const { return static_cast<uint32_t>(file_.text.size()); }

  bool at(std::string_view name) const {
    return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name;
  }

  bool refuse(std::string message) {
    error = std::move(message);
    return false;
  }

  bool misplaced() {
    return state_ == kVocabulary
               ? refuse("model.vocab: expected token ids (whole numbers below 2^31)")
               : refuse(fmt::format("model.merges: entry {}: expected \"left right\" or "
                                    "[\"left\", \"right\"]",
                                    file_.merges.size()));
  }

  json* add(json&& v) {
    if (open_.empty()) return &(file_.rest = std::move(v));
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(v));
    return &(parent[keys_.back()] = std::move(v));
  }

  bool value(json&& v) {
    if (state_ != kDocument) return misplaced();
    if (at("vocab")) return refuse("model.vocab: expected an object, found " + v.dump());
    if (at("merges")) return refuse("model.merges: expected a list, found " + v.dump());
    add(std::move(v));
    return true;
  }

  bool open(json&& v) {
    if (open_.size() == kMaxDepth) return refuse(fmt::format("nested deeper than {}", kMaxDepth));
    open_.push_back(add(std::move(v)));
    keys_.emplace_back();
    return true;
  }

  bool end() {
    if (state_ != kDocument) {
      state_ = kDocument;
      add(json(true));  // marks the list as present, so that a second one is refused
      return true;
    }
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  bool token(int64_t id) {
    if (id < 0) return misplaced();
    pending_.id = id;
    file_.vocabulary.push_back(pending_);
    return true;
  }

  bool merge(const std::string& line) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) {
      return misplaced();
    }
    file_.merges.push_back(
        {offset(), static_cast<uint32_t>(blank), static_cast<uint32_t>(line.size() - blank - 1)});
    file_.text.append(line, 0, blank).append(line, blank + 1);
    return true;
  }

  bool merge_half(const std::string& half) {
    if (halves_ == 2) return misplaced();
    const auto length = static_cast<uint32_t>(half.size());
    pair_ = halves_++ == 0 ? TokenizerFile::Merge{offset(), length, 0}
                           : TokenizerFile::Merge{pair_.offset, pair_.left, length};
    file_.text.append(half);
    return true;
  }

  TokenizerFile& file_;
  State state_ = kDocument;
  std::vector<json*> open_;        // the containers around the next value
  std::vector<std::string> keys_;  // per open container its latest key ("" in arrays)
  TokenizerFile::Token pending_{};
  TokenizerFile::Merge pair_{};
  int halves_ = 0;
};

// Options of BPE that change its result; each must be absent or hold the neutral value.
Status check_model(const json& rest) {
  if (!rest.is_object()) return fail("expected a JSON object");
  if (!rest.contains("model") || !rest["model"].is_object()) return fail("no \"model\" object");
  const json& model = rest["model"];
  if (model.value("type", json("BPE")) != "BPE") {
    return fail("model.type: expected \"BPE\", found {}", model["type"].dump());
  }
  for (const char* list : {"vocab", "merges"}) {
    if (model.value(list, json(false)) != true) return fail("model.{}: missing", list);
  }
  const std::array<std::pair<const char*, json>, 7> neutral{{{"dropout", nullptr},
                                                             {"unk_token", nullptr},
                                                             {"continuing_subword_prefix", ""},
                                                             {"end_of_word_suffix", ""},
                                                             {"fuse_unk", false},
                                                             {"byte_fallback", false},
                                                             {"ignore_merges", false}}};
  for (const auto& [option, off] : neutral) {
    const json value = model.value(option, json());
    if (!value.is_null() && value != off) {
      return fail("model.{}: expected {}, found {}: not supported", option, off.dump(),
                  value.dump(-1, ' ', false, json::error_handler_t::replace));
    }
  }
  return {};
}

Result<TokenizerFile::AddedToken> read_added_token(const json& entry) {
  if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string() ||
      !entry.contains("id") || !entry["id"].is_number_integer()) {
    return fail("expected an object with a string \"content\" and an integer \"id\"");
  }
  TokenizerFile::AddedToken token;
  token.content = entry["content"];
  token.id = entry["id"];
  if (token.content.empty()) return fail("\"content\" is empty");
  bool single_word = false, left = false, right = false;
  const std::array<std::pair<const char*, bool*>, 5> flags{{{"special", &token.special},
                                                            {"normalized", &token.normalized},
                                                            {"single_word", &single_word},
                                                            {"lstrip", &left},
                                                            {"rstrip", &right}}};
  for (const auto& [name, target] : flags) {
    if (!entry.contains(name)) continue;
    if (!entry[name].is_boolean()) return fail("\"{}\": expected true or false", name);
    *target = entry[name];
  }
  if (single_word || left || right) {
    return fail("\"{}\": single_word, lstrip and rstrip are not supported", token.content);
  }
  return token;
}

Status read_added_tokens(TokenizerFile& file) {
  const json list = std::exchange(file.rest["added_tokens"], nullptr);
  if (list.is_null()) return {};
  if (!list.is_array()) return fail("added_tokens: expected a list");
  for (const json& entry : list) {
    auto token = read_added_token(entry);
    if (!token) return fail(token.error().in(fmt::format("added_tokens[{}]", file.added.size())));
    file.added.push_back(std::move(*token));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> TokenizerFile::parse(std::string_view document) {
  TokenizerFile file;
  if (document.size() > INT32_MAX) return fail("larger than 2 GiB");
  Reader reader(file);
  if (!json::sax_parse(document.begin(), document.end(), &reader)) return fail("{}", reader.error);
  CACHALOT_OK(check_model(file.rest));
  CACHALOT_OK(read_added_tokens(file));
  return file;
}

}  // namespace cachalot
