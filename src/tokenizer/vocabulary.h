// The tokens by id: spelling, bytes, flags; and the id by spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_file.h"

namespace cachalot {

class Vocabulary {
 public:
  // Errors: an id used twice, a gap, a token listed twice or an added token whose id contradicts
  // the base vocabulary.
  static Result<Vocabulary> create(const TokenizerFile& file);

  int32_t size() const { return static_cast<int32_t>(flags_.size()); }
  std::string_view name(int32_t id) const { return slice(names_, name_ends_, id); }
  std::string_view bytes(int32_t id) const { return slice(bytes_, byte_ends_, id); }
  bool is_added(int32_t id) const { return (flags_[id] & kAdded) != 0; }
  bool is_special(int32_t id) const { return (flags_[id] & kSpecial) != 0; }
  std::optional<int32_t> find(std::string_view name) const;

 private:
  static constexpr uint8_t kAdded = 1, kSpecial = 2;

  static std::string_view slice(const std::string& text, const std::vector<uint32_t>& ends,
                                int32_t id) {
    const uint32_t start = id == 0 ? 0 : ends[id - 1];
    return std::string_view(text).substr(start, ends[id] - start);
  }
  Status place(const TokenizerFile& file, std::vector<std::string_view>& names);
  void store(const std::vector<std::string_view>& names);
  Status index();

  std::string names_, bytes_;                    // all tokens back to back
  std::vector<uint32_t> name_ends_, byte_ends_;  // [size] offsets
  std::vector<uint8_t> flags_;                   // [size]
  std::vector<int32_t> slots_;                   // open addressing by spelling; -1 is free
};

}  // namespace cachalot
