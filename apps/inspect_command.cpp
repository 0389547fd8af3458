#include "inspect_command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/written_file.h"
#include "inspect/explorer_json.h"
#include "inspect/node_text.h"
#include "inspect/number_text.h"
#include "inspect/tree_text.h"
#include "report.h"
#include "server/explore_file.h"
#include "usage_error.h"

namespace cachalot {
namespace {

constexpr int kShownLevels = 3;

struct InspectCommandOptions {
  std::string model, path, html;
  std::vector<std::string> diff;
  ExplorerOptions explorer;
  TreeTextOptions tree{.depth = -1};  // -1: not said
  bool json = false, markdown = false, csv = false, totals = false;
};

// Of what standard output is shown in.
size_t output_columns() {
  constexpr size_t kLeast = 60, kElsewhere = 100, kMost = 200;
  size_t columns = 0;
  const std::string said = environment::columns().value_or("");
  std::from_chars(said.data(), said.data() + said.size(), columns);
  winsize size{};
  if (columns == 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kElsewhere : std::clamp(columns, kLeast, kMost);
}

Result<Explorer> explored(const std::string& model, const ExplorerOptions& options) {
  auto explorer = explore(model, options);
  // Costs that cannot be told for this model.
  if (!explorer && explorer.error().message.starts_with("--")) usage_error(explorer.error());
  return explorer;
}

Status print_difference(const InspectCommandOptions& options) {
  CACHALOT_TRY(const Explorer a, explored(options.diff[0], options.explorer));
  CACHALOT_TRY(const Explorer b, explored(options.diff[1], options.explorer));
  fmt::print("{}", fitted(difference_text(a, b), output_columns()));
  return {};
}

// The whole tree, or what is below the node of the path.
Status print_tree(const InspectCommandOptions& options, const Explorer& explorer,
                  const Node& node) {
  TreeTextOptions tree = options.tree;
  const bool whole = options.markdown || options.csv || !tree.filter.empty();
  if (tree.depth < 0) tree.depth = whole ? 0 : kShownLevels;
  if (!has_match(explorer, node, tree.filter)) {
    usage_error("--filter {}: no part of a path, title, operation, tensor or key that holds it",
                tree.filter);
  }
  tree.width = output_columns();
  tree.colour = ::isatty(STDOUT_FILENO) != 0;
  if (options.markdown) {
    fmt::print("{}", tree_markdown(explorer, node, tree));
  } else if (options.csv) {
    fmt::print("{}", tree_csv(explorer, node, tree));
  } else {
    fmt::print("{}", tree_text(explorer, node, tree));
    if (&node == &explorer.root) fmt::print("\n{}", fitted(summary_text(explorer), tree.width));
  }
  return {};
}

Status write_page(const std::string& path, const Explorer& explorer) {
  const Status status = write_text_file(path, explore_file(explorer_json(explorer)));
  if (!status) return fail(status.error().in("--html"));
  return {};
}

// Said where nobody asked: totals that are wrong must not pass unseen.
void warn_of_mismatches(const Explorer& explorer) {
  if (explorer.mismatches.empty()) return;
  report("warning: {} difference{} between the configuration and the files; --totals lists them\n",
         explorer.mismatches.size(), explorer.mismatches.size() == 1 ? "" : "s");
}

Status run_command(const InspectCommandOptions& options) {
  if (!options.diff.empty()) return print_difference(options);
  if (options.model.empty()) usage_error("inspect needs a checkpoint folder or a configuration");
  CACHALOT_TRY(const Explorer explorer, explored(options.model, options.explorer));
  if (options.totals) {
    fmt::print("{}", totals_text(explorer));
    if (!explorer.mismatches.empty()) throw CLI::RuntimeError(1);
    return {};
  }
  if (!options.html.empty()) {
    CACHALOT_OK(write_page(options.html, explorer));
    warn_of_mismatches(explorer);
    return {};
  }
  const Node* node = &explorer.root;
  if (!options.path.empty()) {
    CACHALOT_TRY(node, find_node(explorer, options.path));
  }
  const bool tree =
      options.markdown || options.csv || options.tree.depth >= 0 || !options.tree.filter.empty();
  if (options.json) {
    const bool all = options.path.empty();
    fmt::print("{}\n", all ? explorer_json(explorer) : node_json(explorer, *node));
  } else if (options.path.empty() || tree) {
    CACHALOT_OK(print_tree(options, explorer, *node));
  } else {
    fmt::print("{}", node_text(explorer, *node, output_columns()));
  }
  warn_of_mismatches(explorer);
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto options = std::make_shared<InspectCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "The model's architecture, from its checkpoint or configuration alone");
  command->add_option("model", options->model, "Checkpoint folder or configuration file");
  command->add_option("path", options->path,
                      "One part as a page: its path, the end of it, or its title");
  command->add_option("--depth", options->tree.depth, "Levels to show, 0: all (default: 3)")
      ->check(CLI::Range(0, 100));
  command->add_option("--filter", options->tree.filter,
                      "Only parts whose path, title, tensors or configuration keys hold this");
  command
      ->add_option("--context", options->explorer.context,
                   "Positions per sequence that costs are told at (default: 32768)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--batch", options->explorer.batch, "Sequences of a step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command->add_option("--prefill", options->explorer.prefill, "Tokens of a prefill step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  CLI::Option* json = command->add_flag("--json", options->json, "One JSON object");
  CLI::Option* markdown = command->add_flag("--markdown", options->markdown, "A Markdown table");
  CLI::Option* csv = command->add_flag("--csv", options->csv, "One line per part");
  CLI::Option* totals = command->add_flag(
      "--totals", options->totals, "Totals, and whether they agree with the tensors of the files");
  json->excludes(markdown)->excludes(csv)->excludes(totals);
  markdown->excludes(csv)->excludes(totals);
  csv->excludes(totals);
  command
      ->add_option("--html", options->html,
                   "Write the explorer's page to this file; it needs no server and no network")
      ->excludes(json)
      ->excludes(markdown)
      ->excludes(csv)
      ->excludes(totals);
  command->add_option("--diff", options->diff, "What differs between two models, as text")
      ->expected(2)
      ->excludes(json)
      ->excludes(markdown)
      ->excludes(csv)
      ->excludes(totals);
  command->callback([options] {
    const Status status = run_command(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
