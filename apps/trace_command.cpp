#include "trace_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "inspect/trace.h"
#include "model_loader.h"
#include "report.h"

namespace {

using cachalot::Status;

struct TraceCommand {
  cachalot::ModelOptions model;
  std::string golden, output;
  bool free_running = false;
};

Status trace(const TraceCommand& command) {
  CACHALOT_TRY(const cachalot::TensorMap golden, cachalot::read_tensor_map(command.golden));
  CACHALOT_TRY(const cachalot::LoadedModel model, cachalot::load_model(command.model));
  CACHALOT_TRY(const cachalot::Checkpoint checkpoint,
               cachalot::Checkpoint::open(command.model.model));
  CACHALOT_TRY(const cachalot::TensorMap recorded,
               cachalot::record_trace(*model.engine, checkpoint, golden,
                                      {.forced = !command.free_running,
                                       .chunk = model.engine->options().max_step_tokens}));
  CACHALOT_OK(cachalot::write_tensor_map(command.output, recorded));
  fmt::print("{} tensors written to {} ({})\n", recorded.size(), command.output,
             model.engine->description());
  if (const std::string departure = model.engine->first_departure(); !departure.empty()) {
    return cachalot::fail("{}", departure);
  }
  return {};
}

}  // namespace

void add_trace_command(CLI::App& app) {
  auto command = std::make_shared<TraceCommand>();
  CLI::App* sub = app.add_subcommand(
      "trace",
      "Record what every layer receives and produces for a golden trace's tokens, as safetensors");
  sub->add_option("model", command->model.model, "Model folder")->required();
  sub->add_option("--golden", command->golden,
                  "Trace of the reference: its tokens are run, and every layer is fed its inputs")
      ->required();
  sub->add_option("--out", command->output, "File to write")->required();
  sub->add_flag("--free", command->free_running,
                "Take only the tokens from the golden; layers feed one another");
  cachalot::add_engine_options(*sub, command->model);
  sub->callback([command] {
    if (const Status status = trace(*command); !status) {
      cachalot::report("error: {}\n", status.error().message);
      throw CLI::RuntimeError(1);
    }
  });
}
