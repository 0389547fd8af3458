#include "engine/radix_tree.h"

#include <gtest/gtest.h>

#include <random>

namespace cachalot {
namespace {

using Key = std::vector<int64_t>;

struct Number {
  int value = 0;
  bool empty() const { return value == 0; }
};

TEST(RadixTree, FollowsAKeyIntoTheMiddleOfAnEdge) {
  RadixTree<Number> tree;
  tree.insert(Key{1, 2, 3, 4}).value.value = 1;
  tree.insert(Key{1, 2, 5}).value.value = 2;
  const auto match = tree.match(Key{1, 2, 3, 9});
  EXPECT_EQ(match.length, 3);
  EXPECT_EQ(match.node->depth, 4);
  EXPECT_EQ(tree.match(Key{7}).length, 0);
  EXPECT_EQ(tree.match(Key{1, 2}).node->depth, 2);
  EXPECT_EQ(tree.elements(), 5);
}

// Against a map, with keys that share beginnings; every element on an edge belongs to some key.
TEST(RadixTree, IsAMapThatKeepsItsNodesInPlace) {
  std::mt19937 random(1);
  RadixTree<Number> tree;
  std::map<Key, RadixTree<Number>::Node*> expected;
  for (int round = 1; round < 6000; ++round) {
    Key key(1 + random() % 9);
    for (int64_t& element : key) element = random() % 3;
    const auto known = expected.find(key);
    if (random() % 2 == 0) {
      auto& node = tree.insert(key);
      if (known != expected.end()) {
        ASSERT_EQ(known->second, &node);
      }
      node.value.value = round;
      expected[key] = &node;
    } else if (known != expected.end()) {
      known->second->value.value = 0;
      tree.prune(*known->second);
      expected.erase(known);
    }
    size_t longest = 0;
    for (const auto& [other, node] : expected) {
      const auto differ = std::ranges::mismatch(key, other);
      longest = std::max(longest, static_cast<size_t>(differ.in1 - key.begin()));
    }
    ASSERT_EQ(tree.match(key).length, static_cast<int64_t>(longest));
    if (round % 100 != 0) continue;
    for (const auto& [other, node] : expected) ASSERT_EQ(tree.key_of(*node), other);
  }
  while (!expected.empty()) {
    const auto first = expected.begin();
    first->second->value.value = 0;
    tree.prune(*first->second);
    expected.erase(first);
  }
  EXPECT_EQ(tree.elements(), 0);
}

}  // namespace
}  // namespace cachalot
