// The explorer's tree as text: for a terminal, as Markdown and as CSV.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inspect/explorer.h"

namespace cachalot {

struct TreeTextOptions {
  int depth = 0;  // levels below the root; 0: all
  std::string filter =
      {};  // only nodes whose path, title, tensors or keys hold it, and those above
  bool colour = false;
  size_t width = 100;  // columns, at least 60
};

// Whether a filter leaves anything of the tree below `root`.
bool has_match(const Explorer& explorer, const Node& root, const std::string& filter);

// Title, how often, parameters of one (where there is room) and of all, bytes of all.
std::string tree_text(const Explorer& explorer, const Node& root, const TreeTextOptions& options);
std::string tree_markdown(const Explorer& explorer, const Node& root,
                          const TreeTextOptions& options);
// One line per node under a line of names; whole numbers.
std::string tree_csv(const Explorer& explorer, const Node& root, const TreeTextOptions& options);

// Totals by part, and whether they reconcile with the table or the files.
std::string totals_text(const Explorer& explorer);

// The same in two lines, and the first differences.
std::string summary_text(const Explorer& explorer);

// By id, by the only id that ends in /`path`, or by the only title. Errors: none such, with the
// nearest; several, with all.
Result<const Node*> find_node(const Explorer& explorer, std::string_view path);

// From the root to the node, both included.
std::vector<const Node*> way_to(const Explorer& explorer, const Node& node);

}  // namespace cachalot
