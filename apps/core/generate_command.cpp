#include "core/generate_command.h"

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/token_classes.h"
#include "engine/generation.h"
#include "gpu_options.h"
#include "report.h"

namespace cachalot {
namespace {

struct GenerateOptions {
  std::string model, map;
  std::vector<int32_t> ids;
  GpuChoice gpu;
  int64_t most = 32, context = 4096;
  int threads = 0;
};

Status generate(const GenerateOptions& options) {
  CACHALOT_TRY(auto opened, Checkpoint::open(options.model));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  CACHALOT_TRY(std::vector<int32_t> classes, read_token_classes(options.map));
  EngineOptions engine_options;
  engine_options.threads = options.threads;
  engine_options.max_context =
      std::min(options.context, checkpoint->config().max_position_embeddings);
  apply_gpu_options(options.gpu, engine_options);
  CACHALOT_TRY(const auto engine, make_engine(checkpoint, std::move(classes), engine_options));
  report("{}\n", engine->description());
  CACHALOT_TRY(Generator generator, Generator::open(*engine));
  GenerationParameters parameters;
  parameters.sampling.temperature = 0;
  parameters.max_tokens = options.most;
  parameters.end_tokens = {static_cast<int32_t>(engine->config().eos_token_id)};
  CACHALOT_TRY(const GenerationResult result, generator.generate(options.ids, parameters));
  fmt::print("{}\n", fmt::join(result.ids, " "));
  report("prompt {} tokens in {:.3f} s, answer {} tokens in {:.3f} s\n", result.prompt_tokens,
         result.prefill_seconds, result.ids.size(), result.decode_seconds);
  return {};
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "The most likely token ids after some others");
  command->add_option("-m,--model", options->model, "Model folder")->required();
  command
      ->add_option("--map", options->map,
                   "Engram classes of the tokens: what `cachalot tokenize -m MODEL --map` writes")
      ->required();
  command->add_option("ids", options->ids, "The prompt's token ids")->required();
  command->add_option("-n,--max-tokens", options->most, "Tokens of the answer at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("-c,--context", options->context, "Context length in tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads (0: one per available CPU)")
      ->check(CLI::Range(0, 1024));
  add_gpu_options(*command, options->gpu);
  command->callback([options] {
    const Status status = generate(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
