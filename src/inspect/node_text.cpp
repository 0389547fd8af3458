#include "inspect/node_text.h"

#include <algorithm>

#include "inspect/number_text.h"
#include "inspect/tree_text.h"

namespace cachalot {
namespace {

// 3-7, 9-13
std::string ranges_of(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i > 1 ? fmt::format("{}-{}", numbers[i], numbers[end - 1])
                        : fmt::format("{}", numbers[i]);
    i = end;
  }
  return text;
}

std::string symbols_of(const std::vector<Dimension>& shape) {
  std::string text = "[";
  for (const Dimension& dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += dimension.symbol.empty() ? fmt::format("{}", dimension.number) : dimension.symbol;
  }
  return text + "]";
}

std::string names_of(const std::vector<Dimension>& shape) {
  std::string text = "[";
  for (const Dimension& dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += dimension.name;
  }
  return text + "]";
}

std::string numbers_of(const std::vector<Dimension>& shape) {
  std::string text = "[";
  for (const Dimension& dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += fmt::format("{}", dimension.number);
  }
  return text + "]";
}

void put_operands(std::string& text, const char* heading, const std::vector<NodeOperand>& list) {
  if (list.empty()) return;
  text += fmt::format("\n{}\n", heading);
  for (const NodeOperand& operand : list) {
    text +=
        fmt::format("  {:<16} {:<5} {:<26} {}  {}\n", operand.name, operand.dtype,
                    symbols_of(operand.shape), names_of(operand.shape), numbers_of(operand.shape));
  }
}

void put_places(std::string& text, const Explorer& explorer, const NodeWeight& weight) {
  constexpr size_t kShown = 12;
  for (size_t i = 0; i < std::min(kShown, weight.places.size()); ++i) {
    const ExplorerTensor& tensor = explorer.tensors[weight.places[i].tensor];
    if (tensor.file.empty()) return;
    text += fmt::format("    {}  {} bytes {} to {}\n", tensor.name, tensor.file,
                        grouped(tensor.begin), grouped(tensor.end));
  }
  if (weight.places.size() > kShown) {
    text += fmt::format("    and {} more\n", grouped(static_cast<int64_t>(weight.places.size()) -
                                                     static_cast<int64_t>(kShown)));
  }
}

void put_weights(std::string& text, const Explorer& explorer, const Node& node) {
  if (node.weights.empty()) return;
  text += fmt::format("\nweights ({} tensors{})\n", grouped(node.tensors_total),
                      node.bias ? ", with a bias" : ", no bias");
  for (const NodeWeight& weight : node.weights) {
    const ExplorerTensor& first = explorer.tensors[weight.places[0].tensor];
    text += fmt::format("  {:<10} {}\n             {} {} {}, {} bytes each\n", weight.role,
                        weight.pattern, name_of(first.dtype), first.shape.text(),
                        weight.orientation, grouped(first.bytes));
    if (!weight.owner.empty()) text += fmt::format("             counted at {}\n", weight.owner);
    put_places(text, explorer, weight);
  }
}

void put_parameters(std::string& text, const Node& node) {
  if (node.table.empty()) return;
  text += "\nparameters\n";
  for (const TableRow& row : node.table) {
    text += fmt::format("  {:<44} {:<30} {:>20}\n", row.component, row.calculation,
                        grouped(row.parameters));
  }
  text += fmt::format("  {:<44} {:<30} {:>20}\n", "one instance", "", grouped(node.parameters));
  if (node.count() > 1) {
    std::string times;
    for (const CountTerm& term : node.terms)
      times += fmt::format(" x {} {}", term.number, term.what);
    text += fmt::format("  {:<44} {:<30} {:>20}\n", "all", times.substr(1),
                        grouped(node.parameters_total));
  }
  text += fmt::format("  {:<44} {:<30} {:>20}\n", "bytes", node.count() > 1 ? "of all" : "",
                      grouped(node.bytes_total));
}

void put_share(std::string& text, const Node& node) {
  const NodeShare& share = node.share;
  const auto of_one = [&](const NodeCost& cost, int64_t visits, const char* step) {
    const double often = static_cast<double>(share.of) / static_cast<double>(visits);
    text += fmt::format("  a {} step visits at most {} of {}: {} {} each\n", step, visits, share.of,
                        short_flops(cost.flops * often), short_bytes(cost.bytes * often));
  };
  text += fmt::format("  that is a share, 1/{} of what all together cost\n", share.of);
  of_one(node.decode, share.decode_visits, "decode");
  of_one(node.prefill, share.prefill_visits, "prefill");
}

void put_cost(std::string& text, const Explorer& explorer, const Node& node) {
  const ExplorerOptions& at = explorer.options;
  const std::string per = node.cost_unit.empty() ? "" : " per " + node.cost_unit;
  const bool by_step = node.decode.flops != node.prefill.flops ||
                       node.decode.bytes != node.prefill.bytes || node.cost_unit.empty();
  if (by_step) {
    text += fmt::format("\ncost of one instance{}, at most, at batch {} and {} positions\n", per,
                        at.batch, grouped(at.context));
    text += fmt::format("  a decode step                 {:>12} {:>12}\n",
                        short_flops(node.decode.flops), short_bytes(node.decode.bytes));
    text += fmt::format("  a prefill step, {:>7} tokens{:>12} {:>12}\n", grouped(at.prefill),
                        short_flops(node.prefill.flops), short_bytes(node.prefill.bytes));
  } else {
    text += fmt::format("\ncost of one instance{}, at most\n  {} {}\n", per,
                        short_flops(node.decode.flops), short_bytes(node.decode.bytes));
  }
  if (node.share.of > 0) put_share(text, node);
  for (const std::string& id : node.apart) {
    const auto child = std::ranges::find(node.children, id, &Node::id);
    text += fmt::format("  without {}: told per {}\n", child->title, child->cost_unit);
  }
  if (node.cache_bytes_per_token == 0 && node.cache_bytes_fixed == 0) return;
  text += fmt::format("  cache: {} bytes per token, {} bytes per sequence\n",
                      node.cache_bytes_per_token, node.cache_bytes_fixed);
}

void put_evidence(std::string& text, const Explorer& explorer, const Node& node) {
  text += fmt::format("\nevidence (at commit {})\n", source_commit());
  for (const Excerpt& excerpt : node.code) {
    text +=
        fmt::format("  {}:{}-{}  {}\n", excerpt.file, excerpt.begin, excerpt.end, excerpt.function);
    size_t at = 0;
    while (at <= excerpt.text.size()) {
      const size_t end = std::min(excerpt.text.find('\n', at), excerpt.text.size());
      text += fmt::format("    | {}\n", excerpt.text.substr(at, end - at));
      at = end + 1;
    }
  }
  const ConfigKeys keys(explorer.config);
  for (const auto& [key, value] : keys.texts()) {
    if (std::ranges::find(node.config_keys, key) == node.config_keys.end()) continue;
    text.append("  ").append(fmt::format("{} = {}", key, value)).append("\n");
  }
}

}  // namespace

std::string node_text(const Explorer& explorer, const Node& node, size_t width) {
  std::string way;
  for (const Node* step : way_to(explorer, node)) {
    way += (way.empty() ? "" : " > ") + step->title;
  }
  std::string text = fmt::format("{}\n{}\n{}\n\n{}\n", node.title, way, node.id, node.sentence);
  if (!node.formula.empty()) text += fmt::format("\n    {}\n", node.formula);
  text += "\n";
  if (!node.operation.empty()) text += fmt::format("operation  {}\n", node.operation);
  text += fmt::format("kind       {}\n", node.learned ? "learned" : "not learned");
  if (!node.layers.empty()) text += fmt::format("layers     {}\n", ranges_of(node.layers));
  put_operands(text, "in", node.inputs);
  put_operands(text, "out", node.outputs);
  put_weights(text, explorer, node);
  put_parameters(text, node);
  put_cost(text, explorer, node);
  put_evidence(text, explorer, node);
  if (!node.children.empty()) {
    text += "\nparts\n";
    for (const Node& child : node.children) {
      text += fmt::format("  {:<44} {}\n", child.title, child.id);
    }
  }
  return fitted(text, width);
}

}  // namespace cachalot
