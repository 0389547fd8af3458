// Automata over code points, written into a grammar as bytes.
#pragma once

#include <map>

#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace cachalot {

enum class Spelling {
  kRaw,         // UTF-8
  kJson,        // inside a JSON string, escaped only where JSON asks for it
  kJsonEscapes  // ... or anywhere: \/ and \uXXXX too
};

class TextRules {
 public:
  explicit TextRules(GrammarBuilder& builder) : builder_(builder) {}

  // The texts of the automaton, between two nodes: returns the second one.
  int32_t add(int32_t from, const Automaton& automaton, Spelling spelling);

  // One code point of the set.
  void add(int32_t from, const CodePoints& set, Spelling spelling, int32_t to);

  // Any bytes in which none of the patterns occurs. Returns the node behind them.
  int32_t add_bytes_without(int32_t from, std::span<const std::string> patterns);

 private:
  struct Key {
    CodePoints set;
    Spelling spelling;
    auto operator<=>(const Key&) const = default;
  };
  GrammarBuilder& builder_;
  std::map<Key, int32_t> rules_;

  int32_t rule_of(const CodePoints& set, Spelling spelling);
  void add_utf8(int32_t from, CodePoints::Range range, int32_t to);
  void add_escapes(int32_t from, const CodePoints& set, Spelling spelling, int32_t to);
};

}  // namespace cachalot
