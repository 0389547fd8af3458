#include "inspect/tree_text.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "inspect/number_text.h"

namespace cachalot {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool names(const Explorer& explorer, const Node& node, const std::string& wanted) {
  const auto holds = [&](std::string_view text) { return lower(text).find(wanted) != text.npos; };
  return holds(node.id) || holds(node.title) || holds(node.operation) ||
         std::ranges::any_of(node.config_keys, holds) ||
         std::ranges::any_of(node.weights, [&](const NodeWeight& weight) {
           return holds(weight.pattern) ||
                  std::ranges::any_of(weight.places, [&](const auto& place) {
                    return holds(explorer.tensors[place.tensor].name);
                  });
         });
}

// Itself, or something below it.
bool matches(const Explorer& explorer, const Node& node, const std::string& wanted) {
  return wanted.empty() || names(explorer, node, wanted) ||
         std::ranges::any_of(node.children,
                             [&](const Node& child) { return matches(explorer, child, wanted); });
}

// visit(node, depth, whether it is its parent's last, one per level above)
using Visit = std::function<void(const Node&, const std::vector<bool>&)>;

void walk(const Explorer& explorer, const Node& node, const TreeTextOptions& options,
          const std::string& wanted, std::vector<bool>& last, const Visit& visit) {
  visit(node, last);
  if (options.depth > 0 && static_cast<int>(last.size()) >= options.depth) return;
  // Below what is named everything is of interest.
  const std::string below = !last.empty() && names(explorer, node, wanted) ? "" : wanted;
  std::vector<const Node*> shown;
  for (const Node& child : node.children) {
    if (matches(explorer, child, below)) shown.push_back(&child);
  }
  for (const Node* child : shown) {
    last.push_back(child == shown.back());
    walk(explorer, *child, options, below, last, visit);
    last.pop_back();
  }
}

void walk(const Explorer& explorer, const Node& root, const TreeTextOptions& options,
          const Visit& visit) {
  std::vector<bool> last;
  walk(explorer, root, options, lower(options.filter), last, visit);
}

// Digits in a column; nothing for zero.
std::string cell(int64_t value, bool bytes) {
  if (value == 0) return "";
  const auto number = static_cast<double>(value);
  return bytes ? short_bytes(number) : short_count(number);
}

std::string branch(const std::vector<bool>& last) {
  std::string text;
  for (size_t i = 0; i < last.size(); ++i) {
    const bool own = i + 1 == last.size();
    text += own ? (last[i] ? "└─ " : "├─ ") : (last[i] ? "   " : "│  ");
  }
  return text;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

const char* compared_with(const Explorer& explorer) {
  return explorer.has_files ? "the files' headers" : "the configuration's tensors";
}

// The first differences, a line each.
std::string mismatches_text(const Explorer& explorer, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(most, explorer.mismatches.size()); ++i) {
    const Mismatch& mismatch = explorer.mismatches[i];
    text += fmt::format("  {}: expected {}, found {}\n", mismatch.tensor, mismatch.expected,
                        mismatch.found);
  }
  if (explorer.mismatches.size() > most) {
    text += fmt::format("  and {} more\n", explorer.mismatches.size() - most);
  }
  return text;
}

void all_nodes(const Node& node, std::vector<const Node*>& nodes) {
  nodes.push_back(&node);
  for (const Node& child : node.children) all_nodes(child, nodes);
}

std::string listed(const std::vector<const Node*>& nodes) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(nodes.size(), kShown); ++i) text += "\n  " + nodes[i]->id;
  if (nodes.size() > kShown) text += fmt::format("\n  and {} more", nodes.size() - kShown);
  return text;
}

// The nodes whose ids, or the ends of them, look most like `path`.
std::vector<const Node*> nearest(std::vector<const Node*> nodes, std::string_view path) {
  const std::string wanted = lower(path);
  const auto far = [&](const Node* node) {
    const std::string id = lower(node->id);
    size_t least = std::min(distance(id, wanted), distance(lower(node->title), wanted));
    for (size_t slash = id.find('/'); slash != id.npos; slash = id.find('/', slash + 1)) {
      least = std::min(least, distance(std::string_view(id).substr(slash + 1), wanted));
    }
    return least;
  };
  std::vector<std::pair<size_t, const Node*>> ranked;
  ranked.reserve(nodes.size());
  for (const Node* node : nodes) ranked.emplace_back(far(node), node);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes.clear();
  for (size_t i = 0; i < std::min<size_t>(5, ranked.size()); ++i) nodes.push_back(ranked[i].second);
  return nodes;
}

}  // namespace

bool has_match(const Explorer& explorer, const Node& root, const std::string& filter) {
  return matches(explorer, root, lower(filter));
}

namespace {

// What goes on in front of a title's further lines.
std::string trunk(const std::vector<bool>& last) {
  std::string text;
  for (const bool ends : last) text += ends ? "   " : "│  ";
  return text;
}

// At blanks where there are any; in pieces otherwise.
std::vector<std::string> pieces_of(std::string text, size_t width) {
  std::vector<std::string> pieces;
  while (text.size() > width) {
    size_t blank = text.rfind(' ', width);
    if (blank == text.npos || blank == 0) blank = width;
    pieces.push_back(text.substr(0, blank));
    text.erase(0, blank + (text[blank] == ' ' ? 1 : 0));
  }
  pieces.push_back(std::move(text));
  return pieces;
}

}  // namespace

std::string tree_text(const Explorer& explorer, const Node& root, const TreeTextOptions& options) {
  const auto styled = [&](const char* code, std::string_view text) {
    return options.colour ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  };
  // Parameters of one instance only where there is room.
  const bool each = options.width >= 80;
  const size_t titles = options.width - (each ? 38 : 28);
  const auto columns = [&](std::string_view count, std::string_view one, std::string_view all,
                           std::string_view bytes) {
    return fmt::format(" {} {}{:>9} {:>9}", styled("36", fmt::format("{:>7}", count)),
                       each ? fmt::format("{:>9} ", one) : "", all, bytes);
  };
  std::string text =
      styled("2", fmt::format("{:<{}} {:>7} {}{:>9} {:>9}", "part", titles, "count",
                              each ? fmt::format("{:>9} ", "each") : "", "all", "bytes")) +
      "\n";
  walk(explorer, root, options, [&](const Node& node, const std::vector<bool>& last) {
    const size_t width = std::max<size_t>(titles - std::min(titles, 3 * last.size()), 8);
    const bool heading = !node.children.empty();
    const std::string count = node.count() > 1 ? fmt::format("x {}", node.count()) : "";
    std::string begin = branch(last);
    for (const std::string& piece : pieces_of(node.title, width)) {
      std::string line = styled("2", begin) + (heading ? styled("1", piece) : piece);
      if (begin == branch(last)) {
        line += std::string(width - piece.size(), ' ') +
                columns(count, cell(node.parameters, false), cell(node.parameters_total, false),
                        cell(node.bytes_total, true));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
      begin = trunk(last) + "  ";
    }
  });
  return text;
}

std::string tree_markdown(const Explorer& explorer, const Node& root,
                          const TreeTextOptions& options) {
  std::string text =
      "| part | operation | count | parameters each | parameters | bytes |\n"
      "| --- | --- | ---: | ---: | ---: | ---: |\n";
  walk(explorer, root, options, [&](const Node& node, const std::vector<bool>& last) {
    std::string indent;
    for (size_t i = 0; i < last.size(); ++i) indent += "&emsp;";
    text += fmt::format("| {}{} | {} | {} | {} | {} | {} |\n", indent, node.title,
                        node.operation.empty() ? "" : fmt::format("`{}`", node.operation),
                        node.count(), grouped(node.parameters), grouped(node.parameters_total),
                        grouped(node.bytes_total));
  });
  return text;
}

std::string tree_csv(const Explorer& explorer, const Node& root, const TreeTextOptions& options) {
  std::string text =
      "id,title,operation,count,parameters_each,parameters,bytes_each,bytes,tensors,"
      "per,decode_flops,decode_bytes,prefill_flops,prefill_bytes,cache_bytes_per_token,"
      "cache_bytes_fixed\n";
  walk(explorer, root, options, [&](const Node& node, const std::vector<bool>&) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{:.0f},{:.0f},{:.0f},{:.0f},{},{}\n",
                        node.id, csv_field(node.title), node.operation, node.count(),
                        node.parameters, node.parameters_total, node.bytes, node.bytes_total,
                        node.tensors_total, node.cost_unit.empty() ? "step" : node.cost_unit,
                        node.decode.flops, node.decode.bytes, node.prefill.flops,
                        node.prefill.bytes, node.cache_bytes_per_token, node.cache_bytes_fixed);
  });
  return text;
}

std::string summary_text(const Explorer& explorer) {
  const PartTotal& total = explorer.total;
  constexpr size_t kShown = 3;
  return fmt::format("{} parameters, {} bytes, {} tensors\n{}reconciled with {}\n{}",
                     grouped(total.parameters), grouped(total.bytes), grouped(total.tensors),
                     explorer.mismatches.empty() ? "" : "NOT ", compared_with(explorer),
                     mismatches_text(explorer, kShown));
}

std::string totals_text(const Explorer& explorer) {
  std::string text =
      fmt::format("{:<24} {:>20} {:>20} {:>10}\n", "part", "parameters", "bytes", "tensors");
  const auto row = [&](const PartTotal& total) {
    text += fmt::format("{:<24} {:>20} {:>20} {:>10}\n", total.name, grouped(total.parameters),
                        grouped(total.bytes), grouped(total.tensors));
  };
  for (const PartTotal& account : explorer.accounts) row(account);
  row(explorer.total);
  const char* with = compared_with(explorer);
  if (explorer.mismatches.empty()) {
    return text + fmt::format("\nreconciled with {}: every tensor belongs to one part\n", with);
  }
  text += fmt::format("\nNOT reconciled with {}: {} difference{}\n", with,
                      explorer.mismatches.size(), explorer.mismatches.size() == 1 ? "" : "s");
  constexpr size_t kShown = 20;
  return text + mismatches_text(explorer, kShown);
}

Result<const Node*> find_node(const Explorer& explorer, std::string_view path) {
  std::vector<const Node*> nodes, tails, titles;
  all_nodes(explorer.root, nodes);
  const std::string wanted = lower(path), tail = "/" + wanted;
  for (const Node* node : nodes) {
    if (node->id == path) return node;
    if (lower(node->id).ends_with(tail)) tails.push_back(node);
    if (lower(node->title) == wanted) titles.push_back(node);
  }
  const auto& found = tails.empty() ? titles : tails;
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return fail("{}: no part of that path or title; the nearest:{}", path,
                listed(nearest(nodes, path)));
  }
  return fail("{}: {} parts have a path that ends so or this title; which one:{}", path,
              found.size(), listed(found));
}

std::vector<const Node*> way_to(const Explorer& explorer, const Node& node) {
  std::vector<const Node*> way{&explorer.root};
  while (way.back() != &node) {
    const auto& children = way.back()->children;
    const auto next = std::ranges::find_if(children, [&](const Node& child) {
      return node.id == child.id || node.id.starts_with(child.id + "/");
    });
    if (next == children.end()) break;
    way.push_back(&*next);
  }
  return way;
}

}  // namespace cachalot
