// Finite automata over code points: patterns, lengths, formats and forbidden texts of a string,
// intersected before they are written into a grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"

namespace cachalot {

// A construction that needs more states than this is refused.
inline constexpr size_t kMostAutomatonStates = 20000;

// Deterministic: the ranges of a state's edges are sorted and disjoint. State 0 is the first.
struct Automaton {
  struct Edge {
    char32_t first, last;
    int32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepts = false;
  };
  std::vector<State> states;

  // What the texts hold that are accepted; false: none is.
  bool accepts_something() const;
  bool accepts(std::string_view text) const;  // valid UTF-8
};

Automaton any_text();
// Texts of `least` to `most` code points; most < 0: no limit. Errors: too many states.
Result<Automaton> texts_of_length(int64_t least, int64_t most);
Automaton one_of(std::span<const std::string> texts);
Automaton none_of(std::span<const std::string> texts);
// Texts in which no pattern occurs.
Automaton texts_without(std::span<const std::string> patterns);
// Errors: too many states.
Result<Automaton> intersection(const Automaton& a, const Automaton& b);

// Nondeterministic, to build with.
class NondeterministicAutomaton {
 public:
  int32_t add_state();
  void add_edge(int32_t from, const CodePoints& set, int32_t to);
  void add_epsilon(int32_t from, int32_t to);
  size_t size() const { return states_.size(); }
  // Errors: too many states.
  Result<Automaton> determinised(int32_t start, int32_t end) const;

 private:
  struct State {
    std::vector<Automaton::Edge> edges;
    std::vector<int32_t> epsilons;
  };
  std::vector<State> states_;

  std::vector<int32_t> closure(std::vector<int32_t> states) const;
};

}  // namespace cachalot
