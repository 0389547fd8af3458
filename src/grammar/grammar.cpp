#include "grammar/grammar.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace cachalot {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// Where it is that nothing can satisfy the root: a tool and the first place in it, if it is one.
std::string unsatisfiable(const std::vector<std::string>& names,
                          const std::function<bool(size_t)>& never, int32_t root) {
  const auto is_tool = [&](size_t rule) { return names[rule].starts_with("tool '"); };
  for (size_t tool = 0; tool < names.size(); ++tool) {
    if (!is_tool(tool) || !never(tool)) continue;
    for (size_t part = tool + 1; part < names.size() && !is_tool(part); ++part)
      if (names[part].starts_with("#") && never(part))
        return fmt::format("{}: {}", names[tool], names[part]);
    return names[tool];
  }
  return names[root];
}

}  // namespace

bool Grammar::takes(const Edge& edge, int32_t token) const {
  return edge.kind == Edge::kTokens && std::ranges::binary_search(token_sets_[edge.what], token);
}

int32_t GrammarBuilder::add_node() {
  if (nodes_.size() < kMostGrammarNodes) nodes_.emplace_back();
  return static_cast<int32_t>(nodes_.size() - 1);
}

int32_t GrammarBuilder::add_rule(std::string name) {
  starts_.push_back(add_node());
  names_.push_back(std::move(name));
  return static_cast<int32_t>(starts_.size() - 1);
}

void GrammarBuilder::add_edge(int32_t from, Grammar::Edge edge) {
  if (full()) return;
  nodes_[from].edges.push_back(edge);
  ++edge_count_;
}

void GrammarBuilder::add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to) {
  add_edge(from, {Grammar::Edge::kBytes, first, last, 0, to});
}

void GrammarBuilder::add_empty(int32_t from, int32_t to) {
  add_edge(from, {Grammar::Edge::kEmpty, 0, 0, 0, to});
}

void GrammarBuilder::add_call(int32_t from, int32_t rule, int32_t to) {
  add_edge(from, {Grammar::Edge::kCall, 0, 0, rule, to});
}

void GrammarBuilder::add_tokens(int32_t from, std::vector<int32_t> tokens, int32_t to) {
  std::ranges::sort(tokens);
  auto set = std::ranges::find(token_sets_, tokens);
  if (set == token_sets_.end()) set = token_sets_.insert(set, std::move(tokens));
  add_edge(from,
           {Grammar::Edge::kTokens, 0, 0, static_cast<int32_t>(set - token_sets_.begin()), to});
}

int32_t GrammarBuilder::text(int32_t from, std::string_view bytes) {
  for (const char byte : bytes) {
    const int32_t to = add_node();
    add_bytes(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to);
    from = to;
  }
  return from;
}

int32_t GrammarBuilder::call(int32_t from, int32_t rule) {
  const int32_t to = add_node();
  add_call(from, rule, to);
  return to;
}

int32_t GrammarBuilder::token(int32_t from, int32_t token) {
  const int32_t to = add_node();
  add_tokens(from, {token}, to);
  return to;
}

// The least number of nested calls that end a node's rule, by Knuth's generalisation of Dijkstra's
// algorithm: nodes are settled in ascending order, a call when both its rule and its return are.
std::vector<int32_t> GrammarBuilder::heights() const {
  struct Use {
    int32_t node, edge;
  };
  std::vector<std::vector<Use>> uses(nodes_.size());  // edges that wait for a node
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (size_t e = 0; e < nodes_[node].edges.size(); ++e) {
      const Grammar::Edge& edge = nodes_[node].edges[e];
      const Use use{static_cast<int32_t>(node), static_cast<int32_t>(e)};
      uses[edge.target].push_back(use);
      if (edge.kind == Grammar::Edge::kCall) uses[starts_[edge.what]].push_back(use);
    }
  }
  std::vector<int32_t> result(nodes_.size(), kNever);
  std::vector<std::vector<int32_t>> open(1);
  for (size_t node = 0; node < nodes_.size(); ++node)
    if (nodes_[node].final) open[0].push_back(static_cast<int32_t>(node));
  for (size_t level = 0; level < open.size(); ++level) {
    while (!open[level].empty()) {
      const int32_t node = open[level].back();
      open[level].pop_back();
      if (result[node] != kNever) continue;
      result[node] = static_cast<int32_t>(level);
      for (const Use& use : uses[node]) {
        if (result[use.node] != kNever) continue;
        const Grammar::Edge& edge = nodes_[use.node].edges[use.edge];
        int32_t height = result[edge.target];
        if (edge.kind == Grammar::Edge::kCall) {
          const int32_t inner = result[starts_[edge.what]];
          if (height == kNever || inner == kNever) continue;
          height = std::max(height, inner + (is_tail(edge.target) ? 0 : 1));
        }
        if (open.size() <= static_cast<size_t>(height)) open.resize(height + 1);
        open[height].push_back(use.node);
      }
    }
  }
  return result;
}

void GrammarBuilder::remove_dead_edges(const std::vector<int32_t>& heights) {
  for (Node& node : nodes_) {
    std::erase_if(node.edges, [&](const Grammar::Edge& edge) {
      return heights[edge.target] == kNever ||
             (edge.kind == Grammar::Edge::kCall && heights[starts_[edge.what]] == kNever);
    });
  }
}

// Nodes from which the end of the rule is reached without reading anything.
std::vector<bool> GrammarBuilder::nodes_that_may_be_empty() const {
  std::vector<std::vector<int32_t>> waiting(nodes_.size());
  std::vector<bool> result(nodes_.size());
  std::vector<int32_t> open;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].final) open.push_back(static_cast<int32_t>(node));
    for (const Grammar::Edge& edge : nodes_[node].edges) {
      if (edge.kind == Grammar::Edge::kBytes || edge.kind == Grammar::Edge::kTokens) continue;
      waiting[edge.target].push_back(static_cast<int32_t>(node));
      if (edge.kind == Grammar::Edge::kCall)
        waiting[starts_[edge.what]].push_back(static_cast<int32_t>(node));
    }
  }
  const auto may_be_empty = [&](const Grammar::Edge& edge) {
    return (edge.kind == Grammar::Edge::kEmpty && result[edge.target]) ||
           (edge.kind == Grammar::Edge::kCall && result[edge.target] && result[starts_[edge.what]]);
  };
  while (!open.empty()) {
    const int32_t node = open.back();
    open.pop_back();
    if (result[node]) continue;
    result[node] = true;
    for (const int32_t other : waiting[node])
      if (!result[other] && std::ranges::any_of(nodes_[other].edges, may_be_empty))
        open.push_back(other);
  }
  return result;
}

// A rule that may call itself before it has read anything would be entered for ever.
Status GrammarBuilder::check_left_recursion() const {
  const std::vector<bool> empty = nodes_that_may_be_empty();
  // The rules called at the left end of each rule.
  std::vector<std::vector<int32_t>> left(starts_.size());
  std::vector<int32_t> seen_by(nodes_.size(), -1);
  for (size_t rule = 0; rule < starts_.size(); ++rule) {
    std::vector<int32_t> open = {starts_[rule]};
    while (!open.empty()) {
      const int32_t node = open.back();
      open.pop_back();
      if (std::exchange(seen_by[node], rule) == static_cast<int32_t>(rule)) continue;
      for (const Grammar::Edge& edge : nodes_[node].edges) {
        if (edge.kind == Grammar::Edge::kCall) left[rule].push_back(edge.what);
        const bool passes = edge.kind == Grammar::Edge::kEmpty ||
                            (edge.kind == Grammar::Edge::kCall && empty[starts_[edge.what]]);
        if (passes) open.push_back(edge.target);
      }
    }
  }
  enum Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(starts_.size(), kNew);
  for (size_t first = 0; first < starts_.size(); ++first) {
    std::vector<std::pair<int32_t, size_t>> path;
    if (marks[first] == kNew) path.push_back({static_cast<int32_t>(first), 0});
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      marks[rule] = kOpen;
      if (next == left[rule].size()) {
        marks[rule] = kDone;
        path.pop_back();
        continue;
      }
      const int32_t called = left[rule][next++];
      if (marks[called] == kOpen)
        return fail(
            "{}: begins with itself, before anything else is read (left recursion); put "
            "something in front of the repetition, or use a repetition operator",
            names_[called]);
      if (marks[called] == kNew) path.push_back({called, 0});
    }
  }
  return {};
}

void GrammarBuilder::freeze(Grammar& grammar) const {
  std::array<bool, 257> cuts = {};
  for (const Node& node : nodes_) {
    grammar.first_edge_.push_back(static_cast<uint32_t>(grammar.edges_.size()));
    grammar.final_.push_back(node.final);
    for (const Grammar::Edge& edge : node.edges) {
      grammar.edges_.push_back(edge);
      if (edge.kind == Grammar::Edge::kBytes) cuts[edge.first] = cuts[edge.last + 1] = true;
    }
  }
  grammar.first_edge_.push_back(static_cast<uint32_t>(grammar.edges_.size()));
  int32_t byte_class = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0 && cuts[byte]) ++byte_class;
    grammar.classes_[byte] = static_cast<uint8_t>(byte_class);
    grammar.representatives_[byte_class] = static_cast<uint8_t>(byte);
  }
  grammar.class_count_ = byte_class + 1;
}

Result<Grammar> GrammarBuilder::finish(std::span<const int32_t> roots) {
  if (full())
    return fail(
        "{}: too large: the grammar needs more than {} nodes or {} edges; use shorter "
        "repetitions or lengths",
        names_[roots[0]], kMostGrammarNodes, kMostEdges);
  Grammar grammar;
  remove_dead_edges(heights());
  // Only now is it known which calls are the last thing in their rule.
  grammar.heights_ = heights();
  for (const int32_t root : roots) {
    const int32_t height = grammar.heights_[starts_[root]];
    const auto never = [&](size_t rule) { return grammar.heights_[starts_[rule]] == kNever; };
    if (height == kNever)
      return fail("{}: nothing can satisfy it", unsatisfiable(names_, never, root));
    if (height > kMostNestedCalls)
      return fail("{}: every text needs more than {} nested rules", names_[root], kMostNestedCalls);
  }
  CACHALOT_OK(check_left_recursion());
  freeze(grammar);
  grammar.starts_ = starts_;
  grammar.token_sets_ = token_sets_;
  return grammar;
}

}  // namespace cachalot
