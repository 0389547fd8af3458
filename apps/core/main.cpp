// cachalot_core: the model without tokenizer, pictures and server.
#include <CLI/CLI.hpp>

#include "core/generate_command.h"
#include "synth_command.h"

int main(int argc, char** argv) {
  CLI::App app("DeepSeek-V4.1 by token ids");
  app.require_subcommand(1);
  cachalot::add_generate_command(app);
  cachalot::add_synth_command(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
