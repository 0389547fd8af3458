#include "grammar/automaton.h"

#include <algorithm>
#include <map>

#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

tl::unexpected<Error> too_many_states() {
  return fail("too complex: more than {} states are needed; use shorter repetitions",
              kMostAutomatonStates);
}

std::u32string code_points_of(std::string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    result.push_back(step.valid ? step.code_point : U'\uFFFD');
    text.remove_prefix(step.length);
  }
  return result;
}

void add_edges(Automaton::State& state, const CodePoints& set, int32_t target) {
  for (const auto& [first, last] : set.ranges()) state.edges.push_back({first, last, target});
  std::ranges::sort(state.edges, {}, &Automaton::Edge::first);
}

// A tree of texts; `children` by code point.
struct TextTree {
  struct Node {
    std::map<char32_t, int32_t> children;
    bool ends = false;
  };
  std::vector<Node> nodes = std::vector<Node>(1);

  explicit TextTree(std::span<const std::string> texts) {
    for (const std::string& text : texts) {
      int32_t at = 0;
      for (const char32_t c : code_points_of(text)) {
        const auto [child, added] =
            nodes[at].children.try_emplace(c, static_cast<int32_t>(nodes.size()));
        at = child->second;
        if (added) nodes.emplace_back();
      }
      nodes[at].ends = true;
    }
  }
};

}  // namespace

bool Automaton::accepts_something() const {
  std::vector<bool> seen(states.size());
  std::vector<int32_t> open = {0};
  seen[0] = true;
  while (!open.empty()) {
    const State& state = states[open.back()];
    open.pop_back();
    if (state.accepts) return true;
    for (const Edge& edge : state.edges) {
      if (seen[edge.target]) continue;
      seen[edge.target] = true;
      open.push_back(edge.target);
    }
  }
  return false;
}

bool Automaton::accepts(std::string_view text) const {
  int32_t at = 0;
  for (const char32_t c : code_points_of(text)) {
    const auto edge = std::ranges::find_if(
        states[at].edges, [c](const Edge& e) { return e.first <= c && c <= e.last; });
    if (edge == states[at].edges.end()) return false;
    at = edge->target;
  }
  return states[at].accepts;
}

Automaton any_text() {
  Automaton result;
  result.states.resize(1);
  result.states[0].accepts = true;
  add_edges(result.states[0], CodePoints::all(), 0);
  return result;
}

Result<Automaton> texts_of_length(int64_t least, int64_t most) {
  const int64_t last = std::max<int64_t>(most < 0 ? least : most, 0);
  if (last >= static_cast<int64_t>(kMostAutomatonStates)) return too_many_states();
  Automaton result;
  result.states.resize(static_cast<size_t>(last) + 1);
  for (int64_t i = 0; i <= last; ++i) {
    Automaton::State& state = result.states[static_cast<size_t>(i)];
    state.accepts = i >= least;
    if (i < last) add_edges(state, CodePoints::all(), static_cast<int32_t>(i + 1));
    if (i == last && most < 0) add_edges(state, CodePoints::all(), static_cast<int32_t>(i));
  }
  return result;
}

Automaton one_of(std::span<const std::string> texts) {
  const TextTree tree(texts);
  Automaton result;
  for (const TextTree::Node& node : tree.nodes) {
    Automaton::State state{.edges = {}, .accepts = node.ends};
    for (const auto& [c, child] : node.children) state.edges.push_back({c, c, child});
    result.states.push_back(std::move(state));
  }
  return result;
}

Automaton none_of(std::span<const std::string> texts) {
  Automaton result = one_of(texts);
  const auto other = static_cast<int32_t>(result.states.size());
  for (Automaton::State& state : result.states) {
    CodePoints followed;
    for (const Automaton::Edge& edge : state.edges) followed.add(edge.first, edge.last);
    add_edges(state, followed.complement(), other);
    state.accepts = !state.accepts;
  }
  result.states.push_back(any_text().states[0]);
  for (Automaton::Edge& edge : result.states.back().edges) edge.target = other;
  return result;
}

// Aho and Corasick: a state is the longest end of the text that begins a pattern.
Automaton texts_without(std::span<const std::string> patterns) {
  const TextTree tree(patterns);
  const auto count = tree.nodes.size();
  std::vector<int32_t> fallback(count, 0), order = {0};
  std::vector<std::map<char32_t, int32_t>> next(count);
  std::vector<bool> bad(count);
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    bad[node] = tree.nodes[node].ends || (node != 0 && bad[fallback[node]]);
    if (node != 0) next[node] = next[fallback[node]];
    for (const auto& [c, child] : tree.nodes[node].children) {
      if (node != 0) {
        const auto found = next[fallback[node]].find(c);
        fallback[child] = found == next[fallback[node]].end() ? 0 : found->second;
      }
      next[node][c] = child;
      order.push_back(child);
    }
  }
  Automaton result;
  result.states.resize(count);
  for (size_t node = 0; node < count; ++node) {
    Automaton::State& state = result.states[node];
    state.accepts = !bad[node];
    if (bad[node]) continue;  // a dead end
    CodePoints special;
    for (const auto& [c, target] : next[node]) {
      special.add(c, c);
      if (!bad[target]) state.edges.push_back({c, c, target});
    }
    add_edges(state, special.complement(), 0);
  }
  return result;
}

Result<Automaton> intersection(const Automaton& a, const Automaton& b) {
  Automaton result;
  std::map<std::pair<int32_t, int32_t>, int32_t> numbers = {{{0, 0}, 0}};
  std::vector<std::pair<int32_t, int32_t>> pairs = {{0, 0}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > kMostAutomatonStates) return too_many_states();
    const Automaton::State &left = a.states[pairs[i].first], &right = b.states[pairs[i].second];
    Automaton::State state{.edges = {}, .accepts = left.accepts && right.accepts};
    auto x = left.edges.begin(), y = right.edges.begin();
    while (x != left.edges.end() && y != right.edges.end()) {
      const char32_t first = std::max(x->first, y->first), last = std::min(x->last, y->last);
      if (first <= last) {
        const auto [number, added] =
            numbers.try_emplace({x->target, y->target}, static_cast<int32_t>(pairs.size()));
        if (added) pairs.push_back({x->target, y->target});
        state.edges.push_back({first, last, number->second});
      }
      x->last < y->last ? void(++x) : void(++y);
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

int32_t NondeterministicAutomaton::add_state() {
  states_.emplace_back();
  return static_cast<int32_t>(states_.size() - 1);
}

void NondeterministicAutomaton::add_edge(int32_t from, const CodePoints& set, int32_t to) {
  for (const auto& [first, last] : set.ranges()) states_[from].edges.push_back({first, last, to});
}

void NondeterministicAutomaton::add_epsilon(int32_t from, int32_t to) {
  states_[from].epsilons.push_back(to);
}

std::vector<int32_t> NondeterministicAutomaton::closure(std::vector<int32_t> open) const {
  std::vector<int32_t> result;
  std::vector<bool> seen(states_.size());
  while (!open.empty()) {
    const int32_t state = open.back();
    open.pop_back();
    if (seen[state]) continue;
    seen[state] = true;
    result.push_back(state);
    for (const int32_t next : states_[state].epsilons) open.push_back(next);
  }
  std::ranges::sort(result);
  return result;
}

Result<Automaton> NondeterministicAutomaton::determinised(int32_t start, int32_t end) const {
  // The work is states times members: a bound on both keeps a hostile pattern short.
  constexpr size_t kMostMembers = 4000000;
  size_t members = 0;
  Automaton result;
  std::map<std::vector<int32_t>, int32_t> numbers;
  std::vector<const std::vector<int32_t>*> sets;
  const auto number_of = [&](std::vector<int32_t> set) {
    members += states_.size() / 16 + set.size();
    const auto [entry, added] =
        numbers.try_emplace(std::move(set), static_cast<int32_t>(sets.size()));
    if (added) sets.push_back(&entry->first);
    return entry->second;
  };
  number_of(closure({start}));
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > kMostAutomatonStates || members > kMostMembers) return too_many_states();
    Automaton::State state{.edges = {}, .accepts = std::ranges::binary_search(*sets[i], end)};
    std::vector<Automaton::Edge> edges;
    std::vector<char32_t> cuts;
    for (const int32_t member : *sets[i]) {
      for (const Automaton::Edge& edge : states_[member].edges) {
        edges.push_back(edge);
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<int32_t> targets;
      for (const Automaton::Edge& edge : edges)
        if (edge.first <= cuts[c] && cuts[c] <= edge.last) targets.push_back(edge.target);
      if (targets.empty()) continue;
      std::ranges::sort(targets);
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      const int32_t target = number_of(closure(std::move(targets)));
      auto& out = state.edges;
      if (!out.empty() && out.back().target == target && out.back().last + 1 == cuts[c]) {
        out.back().last = cuts[c + 1] - 1;
      } else {
        out.push_back({cuts[c], cuts[c + 1] - 1, target});
      }
      if (sets.size() > kMostAutomatonStates || members > kMostMembers) return too_many_states();
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

}  // namespace cachalot
