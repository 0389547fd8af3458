#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hash.h"

namespace cachalot {

Result<Vocabulary> Vocabulary::create(const TokenizerFile& file) {
  Vocabulary vocabulary;
  std::vector<std::string_view> names;
  CACHALOT_OK(vocabulary.place(file, names));
  vocabulary.store(names);
  CACHALOT_OK(vocabulary.index());
  return vocabulary;
}

// Ids are dense, so none may exceed the number of entries, of which added tokens may repeat some.
Status Vocabulary::place(const TokenizerFile& file, std::vector<std::string_view>& names) {
  const size_t most = file.vocabulary.size() + file.added.size();
  names.resize(most);
  flags_.resize(most);
  std::vector<bool> taken(most);
  size_t count = 0;
  const auto out_of_range = [&](std::string_view name, int64_t id) {
    return fail("token \"{}\" has id {}, but only {} tokens are listed: ids must have no gaps",
                name, id, most);
  };
  for (const auto& token : file.vocabulary) {
    const std::string_view name = file.spelling(token);
    if (static_cast<size_t>(token.id) >= most) return out_of_range(name, token.id);
    if (taken[token.id]) {
      return fail("model.vocab: id {} is given to \"{}\" and to \"{}\"", token.id, names[token.id],
                  name);
    }
    taken[token.id] = true;
    names[token.id] = name;
    ++count;
  }
  for (const auto& token : file.added) {
    if (token.id < 0 || static_cast<size_t>(token.id) >= most) {
      return out_of_range(token.content, token.id);
    }
    if (taken[token.id] && names[token.id] != token.content) {
      return fail("added_tokens: id {} is given to \"{}\", but is \"{}\" already", token.id,
                  token.content, names[token.id]);
    }
    if ((flags_[token.id] & kAdded) != 0) {
      return fail("added_tokens: \"{}\" is listed twice", token.content);
    }
    count += taken[token.id] ? 0 : 1;
    taken[token.id] = true;
    names[token.id] = token.content;
    flags_[token.id] = kAdded | (token.special ? kSpecial : 0);
  }
  const auto gap = std::find(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(count), false);
  if (count == 0) return fail("model.vocab: no tokens");
  if (gap != taken.begin() + static_cast<ptrdiff_t>(count)) {
    return fail("no token has id {}, though {} tokens are listed: ids must have no gaps",
                gap - taken.begin(), count);
  }
  names.resize(count);
  flags_.resize(count);
  return {};
}

void Vocabulary::store(const std::vector<std::string_view>& names) {
  size_t total = 0;
  for (const std::string_view name : names) total += name.size();
  names_.reserve(total);
  bytes_.reserve(total);
  name_ends_.reserve(names.size());
  byte_ends_.reserve(names.size());
  for (const std::string_view name : names) {
    names_.append(name);
    append_spelled_bytes(name, bytes_);
    name_ends_.push_back(static_cast<uint32_t>(names_.size()));
    byte_ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
}

Status Vocabulary::index() {
  slots_.assign(std::bit_ceil(flags_.size() * 2), -1);
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    size_t slot = hash_bytes(name(id)) & mask;
    for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
      if (name(slots_[slot]) == name(id)) {
        return fail("token \"{}\" has two ids, {} and {}", name(id), slots_[slot], id);
      }
    }
    slots_[slot] = id;
  }
  return {};
}

std::optional<int32_t> Vocabulary::find(std::string_view spelling) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_bytes(spelling) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (name(slots_[slot]) == spelling) return slots_[slot];
  }
  return std::nullopt;
}

}  // namespace cachalot
