#include "tokenizer/added_tokens.h"

namespace cachalot {

AddedTokens::Trie::Trie() : nodes_(1) {}

uint32_t AddedTokens::Trie::step(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void AddedTokens::Trie::insert(std::string_view spelling, int32_t id) {
  uint32_t node = 0;
  for (const char byte : spelling) {
    uint32_t child = step(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({-1, 0, nodes_[node].child, byte});
      nodes_[node].child = child;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = child;
    }
    node = child;
  }
  nodes_[node].id = id;
}

void AddedTokens::Trie::find(std::string_view text, size_t base,
                             std::vector<AddedTokenMatch>& matches) const {
  for (size_t begin = 0; begin < text.size();) {
    uint32_t node = first_[static_cast<unsigned char>(text[begin])];
    size_t end = begin + 1, longest = 0;
    int32_t id = -1;
    while (node != 0) {
      if (nodes_[node].id >= 0) {
        longest = end;
        id = nodes_[node].id;
      }
      if (end == text.size()) break;
      node = step(node, text[end++]);
    }
    if (id < 0) {
      ++begin;
      continue;
    }
    matches.push_back({base + begin, base + longest, id});
    begin = longest;
  }
}

AddedTokens::AddedTokens(const std::vector<TokenizerFile::AddedToken>& tokens) {
  for (const auto& token : tokens) {
    has_normalized_ |= token.normalized;
    (token.normalized ? normalized_ : raw_).insert(token.content, static_cast<int32_t>(token.id));
  }
}

void AddedTokens::find(std::string_view text, size_t base,
                       std::vector<AddedTokenMatch>& matches) const {
  if (!has_normalized_) return raw_.find(text, base, matches);
  std::vector<AddedTokenMatch> raw;
  raw_.find(text, 0, raw);
  size_t gap = 0;
  for (const AddedTokenMatch& match : raw) {
    normalized_.find(text.substr(gap, match.begin - gap), base + gap, matches);
    matches.push_back({base + match.begin, base + match.end, match.id});
    gap = match.end;
  }
  normalized_.find(text.substr(gap), base + gap, matches);
}

}  // namespace cachalot
