// Context-free grammars over bytes and control tokens, as one small automaton per rule.
//
// An edge of a rule's automaton takes a byte of a range, a control token of a set, nothing, or
// whatever another rule accepts (a call).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

// How deep calls may be nested while a text is read, tail calls not counted. What would need more
// to be completed is not begun, so that no text ends in a dead end. Below kJsonDepthLimit, for a
// call or more stands for a level of JSON.
inline constexpr int32_t kMostNestedCalls = 240;
inline constexpr size_t kMostGrammarNodes = 400000;

class Grammar {
 public:
  struct Edge {
    enum Kind : uint8_t { kBytes, kEmpty, kCall, kTokens } kind;
    uint8_t first = 0, last = 0;  // kBytes
    int32_t what = 0;             // kCall: the rule; kTokens: the set
    int32_t target = 0;           // node
  };

  std::span<const Edge> edges(int32_t node) const {
    return std::span(edges_).subspan(first_edge_[node], first_edge_[node + 1] - first_edge_[node]);
  }
  bool is_final(int32_t node) const { return final_[node]; }
  // Final and without edges: a call that returns here need not be remembered.
  bool is_tail(int32_t node) const { return final_[node] && edges(node).empty(); }
  int32_t start(int32_t rule) const { return starts_[rule]; }
  size_t nodes() const { return final_.size(); }
  // Calls that must be nested to get from the node to the end of its rule.
  int32_t height(int32_t node) const { return heights_[node]; }
  // Bytes that no edge tells apart have one class.
  int32_t byte_class(uint8_t byte) const { return classes_[byte]; }
  int32_t byte_classes() const { return class_count_; }
  uint8_t byte_of_class(int32_t byte_class) const { return representatives_[byte_class]; }
  const std::vector<std::vector<int32_t>>& token_sets() const { return token_sets_; }
  bool takes(const Edge& edge, int32_t token) const;

 private:
  friend class GrammarBuilder;
  std::vector<uint32_t> first_edge_;
  std::vector<Edge> edges_;
  std::vector<bool> final_;
  std::vector<int32_t> starts_, heights_;
  std::vector<std::vector<int32_t>> token_sets_;  // sorted ids
  std::array<uint8_t, 256> classes_ = {}, representatives_ = {};
  int32_t class_count_ = 0;
};

class GrammarBuilder {
 public:
  // A rule begins as a start node without edges. `name` is for errors.
  int32_t add_rule(std::string name);
  int32_t start(int32_t rule) const { return starts_[rule]; }
  const std::string& name(int32_t rule) const { return names_[rule]; }

  int32_t add_node();
  void set_final(int32_t node) { nodes_[node].final = true; }
  void add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to);
  void add_empty(int32_t from, int32_t to);
  void add_call(int32_t from, int32_t rule, int32_t to);
  void add_tokens(int32_t from, std::vector<int32_t> tokens, int32_t to);

  // The same to new nodes, which are returned.
  int32_t text(int32_t from, std::string_view bytes);
  int32_t call(int32_t from, int32_t rule);
  int32_t token(int32_t from, int32_t token);

  size_t size() const { return nodes_.size(); }
  // Once it has too many nodes, nothing more is added and finish() fails.
  bool full() const { return nodes_.size() >= kMostGrammarNodes || edge_count_ >= kMostEdges; }

  // `roots`: the rules that texts may begin with. Errors name rules: too large, a rule that begins
  // with itself, a root that accepts nothing.
  Result<Grammar> finish(std::span<const int32_t> roots);

 private:
  static constexpr size_t kMostEdges = 2000000;
  struct Node {
    std::vector<Grammar::Edge> edges;
    bool final = false;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> starts_;
  std::vector<std::string> names_;
  std::vector<std::vector<int32_t>> token_sets_;
  size_t edge_count_ = 0;

  void add_edge(int32_t from, Grammar::Edge edge);
  bool is_tail(int32_t node) const { return nodes_[node].final && nodes_[node].edges.empty(); }
  std::vector<int32_t> heights() const;
  void remove_dead_edges(const std::vector<int32_t>& heights);
  std::vector<bool> nodes_that_may_be_empty() const;
  Status check_left_recursion() const;
  void freeze(Grammar& grammar) const;
};

}  // namespace cachalot
