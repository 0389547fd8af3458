#include "grammar/token_trie.h"

#include <algorithm>
#include <string_view>

namespace cachalot {
namespace {

// Longer tokens than any vocabulary has would not fit a node's depth.
constexpr size_t kLongestToken = 60000;

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const size_t size = tokenizer.token_bytes(id).size();
    if (size > 0 && size <= kLongestToken && !tokenizer.is_added(id)) tokens_.push_back(id);
  }
  std::ranges::sort(tokens_, {},
                    [&](int32_t id) { return std::pair(tokenizer.token_bytes(id), id); });
  std::vector<int32_t> path;  // the open node of every depth
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].behind = static_cast<int32_t>(nodes_.size());
  };
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = tokenizer.token_bytes(tokens_[i]);
    longest_ = std::max(longest_, static_cast<int32_t>(bytes.size()));
    if (bytes == before) continue;  // shares the node
    close(common_prefix(before, bytes));
    while (path.size() < bytes.size()) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      // The token belongs to the last of the new nodes: those before it have none.
      nodes_.push_back({0, static_cast<int32_t>(i), static_cast<uint16_t>(path.size()),
                        static_cast<uint8_t>(bytes[path.size() - 1])});
    }
    before = bytes;
  }
  close(0);
  nodes_.push_back({0, static_cast<int32_t>(tokens_.size()), 0, 0});
}

}  // namespace cachalot
