#include "tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <string>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"

namespace cachalot {

Result<BytePairEncoder> BytePairEncoder::create(const TokenizerFile& file,
                                                const Vocabulary& vocabulary) {
  BytePairEncoder encoder;
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(byte_to_letter(static_cast<uint8_t>(byte)), letter);
    const auto id = vocabulary.find(letter);
    if (!id) return fail("model.vocab: no token \"{}\" for byte 0x{:02x}", letter, byte);
    encoder.byte_ids_[byte] = *id;
  }
  encoder.slots_.resize(std::bit_ceil(file.merges.size() * 2 + 2));
  encoder.joined_.reserve(file.merges.size());
  for (const TokenizerFile::Merge& merge : file.merges) {
    const auto both = std::string_view(file.text).substr(merge.offset, merge.left + merge.right);
    const auto left = vocabulary.find(both.substr(0, merge.left));
    const auto right = vocabulary.find(both.substr(merge.left));
    const auto joined = vocabulary.find(both);
    const auto added = [&]() -> Status {
      if (!left || !right || !joined) return fail("not all three of its tokens are in model.vocab");
      return encoder.add_merge(*left, *right, *joined);
    }();
    if (!added) {
      return fail("model.merges: entry {}, \"{}\" + \"{}\": {}", encoder.joined_.size(),
                  both.substr(0, merge.left), both.substr(merge.left), added.error().message);
    }
  }
  encoder.byte_ranks_.resize(256 * 256);
  for (size_t pair = 0; pair < encoder.byte_ranks_.size(); ++pair) {
    encoder.byte_ranks_[pair] =
        encoder.rank_of(encoder.byte_ids_[pair >> 8], encoder.byte_ids_[pair & 0xFF]);
  }
  return encoder;
}

size_t BytePairEncoder::first_slot(int32_t left, int32_t right) const {
  return mix_bits(static_cast<uint64_t>(left), static_cast<uint64_t>(right)) & (slots_.size() - 1);
}

Status BytePairEncoder::add_merge(int32_t left, int32_t right, int32_t joined) {
  size_t at = first_slot(left, right);
  for (; slots_[at].left >= 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].left == left && slots_[at].right == right) {
      return fail("is entry {} already", slots_[at].rank);
    }
  }
  slots_[at] = {left, right, static_cast<uint32_t>(joined_.size())};
  joined_.push_back(joined);
  return {};
}

uint32_t BytePairEncoder::rank_of(int32_t left, int32_t right) const {
  for (size_t at = first_slot(left, right);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.left == left && slot.right == right) return slot.rank;
    if (slot.left < 0) return kNoRank;
  }
}

void BytePairEncoder::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (word.size() <= kShortWord) {
    encode_short(word, ids);
  } else {
    encode_long(word, ids);
  }
}

// Tokens and the ranks of their pairs in two arrays that close up at every join.
void BytePairEncoder::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
  int32_t tokens[kShortWord];
  uint32_t ranks[kShortWord];  // [i]: of tokens i, i + 1
  size_t count = word.size();
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(word[i]); };
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = byte_ids_[byte_at(i)];
    if (i > 0) ranks[i - 1] = byte_ranks_[static_cast<size_t>(byte_at(i - 1)) << 8 | byte_at(i)];
  }
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    tokens[best] = joined_[ranks[best]];
    const size_t behind = count - best - 2;  // tokens after the joined pair
    std::memmove(tokens + best + 1, tokens + best + 2, behind * sizeof *tokens);
    std::memmove(ranks + best, ranks + best + 1, behind * sizeof *ranks);
    --count;
    if (best > 0) ranks[best - 1] = rank_of(tokens[best - 1], tokens[best]);
    if (behind > 0) ranks[best] = rank_of(tokens[best], tokens[best + 1]);
  }
  ids.insert(ids.end(), tokens, tokens + count);
}

// A linked list of tokens and a heap of candidate joins, of which those overtaken by others are
// recognised by their pair having another rank by now.
void BytePairEncoder::encode_long(std::string_view word, std::vector<int32_t>& ids) const {
  constexpr uint32_t kNone = UINT32_MAX;
  struct Link {
    int32_t token;
    uint32_t previous, next;
    uint32_t rank;  // of this token and the next; kNoRank also for tokens joined into another
  };
  struct Candidate {
    uint32_t rank, at;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto size = static_cast<uint32_t>(word.size());
  std::vector<Link> links(size);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto rerank = [&](uint32_t at) {
    Link& link = links[at];
    link.rank = link.next == kNone ? kNoRank : rank_of(link.token, links[link.next].token);
    if (link.rank != kNoRank) heap.push({link.rank, at});
  };
  for (uint32_t i = 0; i < size; ++i) {
    links[i] = {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? kNone : i - 1,
                i + 1 == size ? kNone : i + 1, kNoRank};
  }
  for (uint32_t i = 0; i < size; ++i) rerank(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Link& link = links[top.at];
    if (link.rank != top.rank) continue;
    Link& gone = links[link.next];
    link.token = joined_[top.rank];
    gone.rank = kNoRank;
    link.next = gone.next;
    if (link.next != kNone) links[link.next].previous = top.at;
    rerank(top.at);
    if (link.previous != kNone) rerank(link.previous);
  }
  for (uint32_t at = 0; at != kNone; at = links[at].next) ids.push_back(links[at].token);
}

}  // namespace cachalot
