#include <algorithm>
#include <map>

#include "inspect/node_text.h"
#include "inspect/number_text.h"

namespace cachalot {
namespace {

std::string heading(std::string text, const char* name) {
  return text.empty() ? "" : fmt::format("{}\n{}\n", name, text);
}

std::string config_difference(const Explorer& a, const Explorer& b) {
  const ConfigKeys keys_a(a.config), keys_b(b.config);
  std::string text;
  for (size_t i = 0; i < keys_a.texts().size(); ++i) {
    const auto& [key, value] = keys_a.texts()[i];
    const std::string& other = keys_b.texts()[i].second;
    if (value != other) text += fmt::format("  {:<32} {} -> {}\n", key, value, other);
  }
  return heading(text, "configuration");
}

std::string total_difference(const Explorer& a, const Explorer& b) {
  std::map<std::string, std::pair<PartTotal, PartTotal>> totals;
  for (const PartTotal& total : a.accounts) totals[total.name].first = total;
  for (const PartTotal& total : b.accounts) totals[total.name].second = total;
  totals["total"] = {a.total, b.total};
  std::string text;
  for (const auto& [name, pair] : totals) {
    const auto& [first, second] = pair;
    if (first.parameters == second.parameters && first.bytes == second.bytes) continue;
    text += fmt::format("  {:<24} {} -> {} parameters, {} -> {} bytes\n", name,
                        grouped(first.parameters), grouped(second.parameters), grouped(first.bytes),
                        grouped(second.bytes));
  }
  return heading(text, "totals");
}

void collect(const Node& node, std::map<std::string, const Node*>& nodes) {
  nodes[node.id] = &node;
  for (const Node& child : node.children) collect(child, nodes);
}

// Nodes that are there once, without those below another such.
void only_in(const std::map<std::string, const Node*>& here,
             const std::map<std::string, const Node*>& there, const char* mark, std::string& text) {
  for (const auto& [id, node] : here) {
    if (there.contains(id)) continue;
    const size_t slash = id.rfind('/');
    if (slash != id.npos && !there.contains(id.substr(0, slash))) continue;
    text += fmt::format("  {} {}  {} ({} parameters)\n", mark, id, node->title,
                        grouped(node->parameters_total));
  }
}

std::string part_difference(const Explorer& a, const Explorer& b) {
  std::map<std::string, const Node*> nodes_a, nodes_b;
  collect(a.root, nodes_a);
  collect(b.root, nodes_b);
  std::string text;
  only_in(nodes_a, nodes_b, "-", text);
  only_in(nodes_b, nodes_a, "+", text);
  for (const auto& [id, node] : nodes_a) {
    const auto found = nodes_b.find(id);
    if (found == nodes_b.end() || id == "model") continue;
    const Node& other = *found->second;
    if (node->parameters != other.parameters) {
      text += fmt::format("  ~ {}  {} -> {} parameters each\n", id, grouped(node->parameters),
                          grouped(other.parameters));
    }
    if (node->count() != other.count()) {
      text += fmt::format("  ~ {}  x {} -> x {}\n", id, node->count(), other.count());
    }
  }
  return heading(text, "parts (- only in the first, + only in the second, ~ changed)");
}

std::string form_of(const ExplorerTensor& tensor) {
  return fmt::format("{} {}", name_of(tensor.dtype), tensor.shape.text());
}

std::string tensor_difference(const Explorer& a, const Explorer& b) {
  constexpr size_t kShown = 20;
  std::map<std::string, std::pair<const ExplorerTensor*, const ExplorerTensor*>> tensors;
  for (const ExplorerTensor& tensor : a.tensors) tensors[tensor.name].first = &tensor;
  for (const ExplorerTensor& tensor : b.tensors) tensors[tensor.name].second = &tensor;
  std::string text;
  size_t count = 0;
  for (const auto& [name, pair] : tensors) {
    const auto& [first, second] = pair;
    const std::string was = first != nullptr ? form_of(*first) : "none";
    const std::string is = second != nullptr ? form_of(*second) : "none";
    if (was == is) continue;
    if (++count <= kShown) text += fmt::format("  {}  {} -> {}\n", name, was, is);
  }
  if (count > kShown)
    text += fmt::format("  and {} more\n", grouped(static_cast<int64_t>(count - kShown)));
  return heading(text, "tensors");
}

}  // namespace

std::string difference_text(const Explorer& a, const Explorer& b) {
  const std::string text = config_difference(a, b) + total_difference(a, b) +
                           part_difference(a, b) + tensor_difference(a, b);
  return fmt::format("{} -> {}\n\n{}", a.source, b.source,
                     text.empty() ? "no difference in configuration, parts and tensors\n" : text);
}

}  // namespace cachalot
