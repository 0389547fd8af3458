// What a grammar is in the middle of: sets of places, each with the calls it returns from, and the
// tokens that may follow. Everything is computed once and kept: in a string, behind a comma, an
// answer is in a state it has been in before.
//
// A place that cannot be completed within kMostNestedCalls is left out of its state, and of more
// than kMostPlaces in a state the last ones; what remains can always be completed, so that a text
// accepted so far always has a continuation.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace cachalot {

class StateSpace {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr size_t kMostPlaces = 2000;
  static constexpr size_t kMostPlacesOfAMask = 50000;

  // A place by itself: its node, then the nodes its calls return to, the innermost first.
  using Place = std::vector<int32_t>;
  // A state that can be taken over into another space.
  struct Configuration {
    std::vector<Place> places;
    bool accepts = false;
  };

  // Both outlive the space.
  StateSpace(const Grammar& grammar, const TokenTrie& trie, int32_t vocab_size);

  int32_t start(int32_t rule);
  int32_t after_byte(int32_t state, uint8_t byte);
  int32_t after_control_token(int32_t state, int32_t token);
  bool accepts(int32_t state) const { return states_[state].accepts; }

  // The tokens that may follow but end tokens, one bit each, into `words`. If they lead through
  // more than kMostStatesOfAMask states, tokens of several bytes that come late in the order of
  // their bytes are left out: only hostile grammars get there, and nothing becomes impossible to
  // write.
  void mask(int32_t state, std::span<uint64_t> words);

  Configuration configuration(int32_t state) const;
  int32_t state_of(const Configuration& configuration);

  // About what it occupies.
  size_t bytes() const { return bytes_; }

 private:
  static constexpr int32_t kUnknown = -2;
  struct Frame {
    int32_t node, parent, depth;
  };
  struct Item {
    int32_t node, frame;
    bool operator==(const Item&) const = default;
  };
  struct State {
    std::vector<Item> items;
    bool accepts = false;
    int32_t mask = -1;
    int32_t walk = 0;  // the last one that came through
  };
  struct Mask {
    std::vector<uint64_t> words;  // or, if they are few,
    std::vector<int32_t> tokens;
    bool sparse = false;
  };

  const Grammar& grammar_;
  const TokenTrie& trie_;
  int32_t vocab_size_;
  std::deque<Frame> frames_;  // 0: no call is open
  std::unordered_map<uint64_t, int32_t> frame_numbers_;
  std::vector<State> states_;
  std::vector<int32_t> next_;                                 // [states][byte classes]
  std::unordered_multimap<uint64_t, int32_t> state_numbers_;  // by hash
  std::unordered_map<uint64_t, int32_t> after_tokens_;
  std::vector<Mask> masks_;
  size_t bytes_ = 0;
  int32_t walks_ = 0;
  std::unordered_set<uint64_t> seen_;  // of state_from()

  bool fits(int32_t node, int32_t frame) const;
  int32_t frame(int32_t node, int32_t parent);
  int32_t state_from(std::vector<Item> open);
  int32_t number_of(State state);
  int32_t step(int32_t state, int32_t byte_class);
  std::vector<int32_t> collect(int32_t state);
  void keep_mask(int32_t state, std::vector<int32_t> tokens);
};

}  // namespace cachalot
