#include "grammar/state_space.h"

#include <algorithm>
#include <utility>

namespace cachalot {
namespace {

uint64_t pair_of(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

StateSpace::StateSpace(const Grammar& grammar, const TokenTrie& trie, int32_t vocab_size)
    : grammar_(grammar), trie_(trie), vocab_size_(vocab_size) {
  frames_.push_back({-1, -1, 0});
}

int32_t StateSpace::start(int32_t rule) { return state_from({{grammar_.start(rule), 0}}); }

bool StateSpace::fits(int32_t node, int32_t frame) const {
  return frames_[frame].depth + grammar_.height(node) <= kMostNestedCalls;
}

int32_t StateSpace::frame(int32_t node, int32_t parent) {
  const auto [entry, added] =
      frame_numbers_.try_emplace(pair_of(node, parent), static_cast<int32_t>(frames_.size()));
  if (added) {
    frames_.push_back({node, parent, frames_[parent].depth + 1});
    bytes_ += 64;
  }
  return entry->second;
}

// The state of all places that are reached from `open` without reading anything.
int32_t StateSpace::state_from(std::vector<Item> open) {
  State state;
  seen_.clear();
  std::ranges::reverse(open);
  while (!open.empty() && state.items.size() < kMostPlaces) {
    const Item item = open.back();
    open.pop_back();
    if (!fits(item.node, item.frame) || !seen_.insert(pair_of(item.node, item.frame)).second)
      continue;
    if (grammar_.is_final(item.node)) {
      const Frame& back = frames_[item.frame];
      if (item.frame == 0) {
        state.accepts = true;
      } else {
        open.push_back({back.node, back.parent});
      }
    }
    bool reads = false;
    for (const Grammar::Edge& edge : grammar_.edges(item.node)) {
      if (edge.kind == Grammar::Edge::kEmpty) {
        open.push_back({edge.target, item.frame});
      } else if (edge.kind == Grammar::Edge::kCall) {
        const bool tail = grammar_.is_tail(edge.target);
        if (!fits(edge.target, item.frame)) continue;
        const int32_t inside = tail ? item.frame : frame(edge.target, item.frame);
        open.push_back({grammar_.start(edge.what), inside});
      } else {
        reads = true;
      }
    }
    if (reads) state.items.push_back(item);
  }
  return number_of(std::move(state));
}

int32_t StateSpace::number_of(State state) {
  if (state.items.empty() && !state.accepts) return kDead;
  uint64_t hash = state.accepts;
  for (const Item& item : state.items)
    hash = (hash ^ pair_of(item.node, item.frame)) * 0x9E3779B97F4A7C15 + (hash >> 29);
  const auto [first, last] = state_numbers_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const State& other = states_[entry->second];
    if (other.items == state.items && other.accepts == state.accepts) return entry->second;
  }
  const auto number = static_cast<int32_t>(states_.size());
  bytes_ += 128 + state.items.size() * sizeof(Item) +
            static_cast<size_t>(grammar_.byte_classes()) * sizeof(int32_t);
  state_numbers_.emplace(hash, number);
  states_.push_back(std::move(state));
  next_.resize(next_.size() + static_cast<size_t>(grammar_.byte_classes()), kUnknown);
  return number;
}

int32_t StateSpace::step(int32_t state, int32_t byte_class) {
  const uint8_t byte = grammar_.byte_of_class(byte_class);
  std::vector<Item> open;
  for (const Item& item : states_[state].items) {
    for (const Grammar::Edge& edge : grammar_.edges(item.node)) {
      if (edge.kind == Grammar::Edge::kBytes && edge.first <= byte && byte <= edge.last)
        open.push_back({edge.target, item.frame});
    }
  }
  const int32_t next = open.empty() ? kDead : state_from(std::move(open));
  next_[static_cast<size_t>(state) * grammar_.byte_classes() + byte_class] = next;
  return next;
}

int32_t StateSpace::after_byte(int32_t state, uint8_t byte) {
  const int32_t byte_class = grammar_.byte_class(byte);
  const int32_t next = next_[static_cast<size_t>(state) * grammar_.byte_classes() + byte_class];
  return next == kUnknown ? step(state, byte_class) : next;
}

int32_t StateSpace::after_control_token(int32_t state, int32_t token) {
  const uint64_t key = pair_of(state, token);
  if (const auto known = after_tokens_.find(key); known != after_tokens_.end())
    return known->second;
  std::vector<Item> open;
  for (const Item& item : states_[state].items)
    for (const Grammar::Edge& edge : grammar_.edges(item.node))
      if (grammar_.takes(edge, token)) open.push_back({edge.target, item.frame});
  const int32_t next = open.empty() ? kDead : state_from(std::move(open));
  after_tokens_[key] = next;
  bytes_ += 64;
  return next;
}

// The tokens spelled with bytes, by a walk over the tree that skips what hangs below a dead end.
// What comes out depends on the state alone, not on what is known already.
std::vector<int32_t> StateSpace::collect(int32_t state) {
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  std::vector<int32_t> tokens, path(static_cast<size_t>(trie_.longest()) + 1);
  tokens.reserve(trie_.tokens().size());
  path[0] = state;
  ++walks_;
  size_t met = 0;
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node node = nodes[i];
    const bool too_far = met > kMostPlacesOfAMask && node.depth > 1;
    const int32_t after = too_far ? kDead : after_byte(path[node.depth - 1], node.byte);
    if (after == kDead) {
      i = static_cast<size_t>(node.behind);
      continue;
    }
    if (std::exchange(states_[after].walk, walks_) != walks_)
      met += 1 + states_[after].items.size();
    path[node.depth] = after;
    for (int32_t t = node.first_token; t < nodes[i + 1].first_token; ++t)
      tokens.push_back(trie_.tokens()[t]);
    ++i;
  }
  return tokens;
}

void StateSpace::keep_mask(int32_t state, std::vector<int32_t> tokens) {
  const auto words = static_cast<size_t>(vocab_size_ + 63) / 64;
  Mask mask;
  mask.sparse = tokens.size() * sizeof(int32_t) < words * sizeof(uint64_t) / 2;
  if (mask.sparse) {
    bytes_ += tokens.size() * sizeof(int32_t);
    tokens.shrink_to_fit();
    mask.tokens = std::move(tokens);
  } else {
    bytes_ += words * sizeof(uint64_t);
    mask.words.resize(words);
    for (const int32_t token : tokens) mask.words[token / 64] |= uint64_t{1} << token % 64;
  }
  states_[state].mask = static_cast<int32_t>(masks_.size());
  masks_.push_back(std::move(mask));
}

void StateSpace::mask(int32_t state, std::span<uint64_t> words) {
  if (states_[state].mask < 0) {
    std::vector<int32_t> tokens = collect(state);
    for (const Item& item : states_[state].items)
      for (const Grammar::Edge& edge : grammar_.edges(item.node))
        if (edge.kind == Grammar::Edge::kTokens)
          for (const int32_t token : grammar_.token_sets()[edge.what]) tokens.push_back(token);
    keep_mask(state, std::move(tokens));
  }
  const Mask& mask = masks_[states_[state].mask];
  if (!mask.sparse) {
    std::ranges::copy(mask.words, words.begin());
    return;
  }
  std::ranges::fill(words, 0);
  for (const int32_t token : mask.tokens) words[token / 64] |= uint64_t{1} << token % 64;
}

StateSpace::Configuration StateSpace::configuration(int32_t state) const {
  Configuration result{.places = {}, .accepts = states_[state].accepts};
  for (const Item& item : states_[state].items) {
    Place place = {item.node};
    for (int32_t at = item.frame; at != 0; at = frames_[at].parent)
      place.push_back(frames_[at].node);
    result.places.push_back(std::move(place));
  }
  return result;
}

int32_t StateSpace::state_of(const Configuration& configuration) {
  State state{.items = {}, .accepts = configuration.accepts};
  for (const Place& place : configuration.places) {
    int32_t open = 0;
    for (size_t i = place.size() - 1; i > 0; --i) open = frame(place[i], open);
    state.items.push_back({place[0], open});
  }
  return number_of(std::move(state));
}

}  // namespace cachalot
