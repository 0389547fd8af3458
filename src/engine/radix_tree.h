// A map from sequences of 64-bit elements to values that knows which of them begin alike: a tree
// whose edges are runs of elements. Nodes keep their address as long as they are in the tree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace cachalot {

// Value::empty() says that a node is needed for its children only.
template <class Value>
class RadixTree {
 public:
  struct Node {
    std::vector<int64_t> edge;  // from the parent; empty at the root alone
    Node* parent = nullptr;
    std::map<int64_t, std::unique_ptr<Node>> children;  // by the first element of their edge
    int64_t depth = 0;                                  // elements from the root
    Value value;
  };

  // How far the tree follows a key: `length` elements, the last of them on the edge to `node`.
  struct Match {
    Node* node = nullptr;
    int64_t length = 0;
  };

  Match match(std::span<const int64_t> key) const {
    Match match{root_.get(), 0};
    while (match.length == match.node->depth && match.length < std::ssize(key)) {
      const auto rest = key.subspan(static_cast<size_t>(match.length));
      const auto child = match.node->children.find(rest.front());
      if (child == match.node->children.end()) break;
      match.node = child->second.get();
      const auto differ = std::ranges::mismatch(match.node->edge, rest);
      match.length += differ.in1 - match.node->edge.begin();
    }
    return match;
  }

  // The node of exactly this key, made if there is none.
  Node& insert(std::span<const int64_t> key) {
    Match at = match(key);
    if (at.length < at.node->depth) at.node = &split(*at.node, at.length);
    return at.length < std::ssize(key)
               ? add_child(*at.node, key.subspan(static_cast<size_t>(at.length)))
               : *at.node;
  }

  // After a value was made empty: takes out what is no longer needed.
  void prune(Node& node) {
    Node* at = &node;
    while (at->parent != nullptr && at->value.empty() && at->children.empty()) {
      Node* const parent = at->parent;
      elements_ -= std::ssize(at->edge);
      parent->children.erase(at->edge.front());
      at = parent;
    }
    if (at->parent != nullptr && at->value.empty() && at->children.size() == 1) join(*at);
  }

  // On all edges.
  int64_t elements() const { return elements_; }

  static std::vector<int64_t> key_of(const Node& node) {
    std::vector<int64_t> key(static_cast<size_t>(node.depth));
    for (const Node* at = &node; at->parent != nullptr; at = at->parent) {
      std::ranges::copy(at->edge, key.begin() + at->parent->depth);
    }
    return key;
  }

 private:
  Node& add_child(Node& parent, std::span<const int64_t> edge) {
    auto child = std::make_unique<Node>();
    child->edge.assign(edge.begin(), edge.end());
    child->parent = &parent;
    child->depth = parent.depth + std::ssize(edge);
    elements_ += std::ssize(edge);
    return *(parent.children[edge.front()] = std::move(child));
  }

  // A node of its own where the edge to `node` is `depth` elements deep.
  Node& split(Node& node, int64_t depth) {
    std::unique_ptr<Node>& place = node.parent->children[node.edge.front()];
    auto upper = std::make_unique<Node>();
    const auto cut = node.edge.begin() + (depth - node.parent->depth);
    upper->edge.assign(node.edge.begin(), cut);
    upper->parent = node.parent;
    upper->depth = depth;
    node.edge.erase(node.edge.begin(), cut);
    node.parent = upper.get();
    upper->children[node.edge.front()] = std::move(place);
    place = std::move(upper);
    return *place;
  }

  // Puts the only child in the node's place.
  void join(Node& node) {
    std::unique_ptr<Node> child = std::move(node.children.begin()->second);
    child->edge.insert(child->edge.begin(), node.edge.begin(), node.edge.end());
    child->parent = node.parent;
    node.parent->children[child->edge.front()] = std::move(child);
  }

  std::unique_ptr<Node> root_ = std::make_unique<Node>();
  int64_t elements_ = 0;
};

}  // namespace cachalot
