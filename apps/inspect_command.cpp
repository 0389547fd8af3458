#include "inspect_command.h"

#include <fmt/format.h>

#include <memory>

#include "inspect/explorer_json.h"
#include "report.h"

namespace cachalot {
namespace {

struct InspectCommandOptions {
  std::string model;
  ExplorerOptions explorer;
  bool json = false;
};

Status run_command(const InspectCommandOptions& options) {
  CACHALOT_TRY(const Explorer explorer, explore(options.model, options.explorer));
  fmt::print("{}\n", explorer_json(explorer));
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto options = std::make_shared<InspectCommandOptions>();
  CLI::App* command = app.add_subcommand("inspect", "The model's architecture as a tree");
  command->add_option("model", options->model, "Checkpoint folder or configuration file")
      ->required();
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options] {
    const Status status = run_command(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
