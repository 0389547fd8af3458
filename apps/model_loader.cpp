#include "model_loader.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/cpu_info.h"
#include "checkpoint/checkpoint.h"
#include "default_model.h"
#include "engine/stored_weights.h"
#include "report.h"
#include "tokenizer/engram_token_map.h"
#include "usage_error.h"

namespace cachalot {
namespace {

// The caches of a whole context are reserved at start; the release allows a million tokens, which
// few machines want to pay for unasked.
constexpr int64_t kDefaultContextLimit = 32768;

EngineOptions engine_options(const ModelOptions& options, const ModelConfig& config) {
  EngineOptions result;
  result.threads = options.threads;
  if (options.backend == "reference") result.backend = Backend::reference;
  if (options.backend == "checked") result.backend = Backend::checked;
  if (!options.isa.empty()) {
    const Result<Isa> isa = choose_isa(options.isa);
    if (!isa) usage_error(isa.error().in("--isa"));
    result.isa = *isa;
  }
  if (options.context > config.max_position_embeddings)
    usage_error("--context: the model takes at most {} tokens, found {}",
                config.max_position_embeddings, options.context);
  result.max_context = options.context > 0
                           ? options.context
                           : std::min(config.max_position_embeddings, kDefaultContextLimit);
  result.max_step_tokens = options.chunk;
  result.max_sequences = options.max_sequences;
  result.watchable = options.watchable;
  if (options.activations == "int8") result.expert_input = ExpertInput::int8;
  apply_storage_options(options.storage, result);
  if (options.prefill_mode() == PrefillMode::shortcut) result.shortcut_tail = options.prefill_tail;
  apply_gpu_options(options.gpu, result);
  check_storage_options(options.storage, result);
  return result;
}

void check_prefill_options(const ModelOptions& options) {
  if (options.prefill_tail == 0 || options.prefill_mode() == PrefillMode::shortcut) return;
  usage_error("--prefill-tail: expected --prefill shortcut with it, found --prefill {}",
              options.prefill);
}

void check_memory_options(const ModelOptions& options) {
  const bool stored = options.storage.expert_cache || options.storage.engram_cache;
  if (options.memory.lock && stored) {
    usage_error(
        "--mlock: it keeps the whole checkpoint in memory; leave it out with --expert-cache "
        "or --engram-cache");
  }
  if (options.memory.huge_pages && options.storage.expert_cache) {
    usage_error("--huge-pages: it reads all experts into memory; leave it out with --expert-cache");
  }
}

// How much an expert takes is known once the model is open.
Status check_expert_cache(const ModelOptions& options, const Checkpoint& checkpoint) {
  if (!options.storage.expert_cache) return {};
  CACHALOT_TRY(const int64_t least, least_expert_cache(checkpoint));
  if (*options.storage.expert_cache >= least) return {};
  usage_error(
      "--expert-cache: expected at least {} bytes, the size of one expert, found {}; without it "
      "experts are used from the mapping",
      least, *options.storage.expert_cache);
}

Status check_folder(const std::string& model) {
  if (model.empty()) usage_error("-m: expected a model folder, found an empty name");
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return {};
  return fail(
      "{}: expected a model folder (config.json, tokenizer.json and *.safetensors), found {}; "
      "name one with -m FOLDER",
      model, std::filesystem::exists(model, ignored) ? "a file" : "nothing there");
}

}  // namespace

void add_model_option(CLI::App& command, ModelOptions& options) {
  options.model = default_model();
  command.add_option("-m,--model", options.model, "Model folder")->capture_default_str();
}

void add_engine_options(CLI::App& command, ModelOptions& options) {
  constexpr const char* kGroup = "Engine";
  command.add_option("--threads", options.threads, "CPU threads (0: one per available CPU)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option(
          "--isa", options.isa,
          "Instruction set: generic, avx2, avx512, avx512_bf16, amx (default: the best here)")
      ->group(kGroup);
  command
      .add_option("--backend", options.backend,
                  "cpu; reference (slow, for comparison); checked (cpu compared with reference)")
      ->check(CLI::IsMember({"cpu", "reference", "checked"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("-c,--context,--ctx,--ctx-size", options.context,
                  fmt::format("Context length in tokens (default: the model's, at most {})",
                              kDefaultContextLimit))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(kGroup);
  command
      .add_option("--activations", options.activations,
                  "How inputs of the routed experts are rounded: fp8 (as released); int8 (faster, "
                  "not the same text)")
      ->check(CLI::IsMember({"fp8", "int8"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--chunk", options.chunk, "Tokens of the prompt computed at a time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->group(kGroup);
  add_gpu_options(command, options.gpu);
  add_memory_options(command, options.memory);
}

void add_prefill_options(CLI::App& command, ModelOptions& options) {
  constexpr const char* kGroup = "Engine";
  command
      .add_option("--prefill", options.prefill,
                  "exact; shortcut (the layers above the last KV source see a prompt's tail only: "
                  "faster, almost the same)")
      ->check(CLI::IsMember({"exact", "shortcut"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--prefill-tail", options.prefill_tail,
                  "Tokens of the shortcut's tail (default: the model's window)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->group(kGroup);
}

Result<OpenedModel> open_model(const ModelOptions& options) {
  check_memory_options(options);
  check_prefill_options(options);
  if (const int cpus = cpus_at_once(); options.threads > cpus) {
    report("warning: --threads {}: more threads than CPUs for this process ({}) make it slower\n",
           options.threads, cpus);
  }
  CACHALOT_OK(check_folder(options.model));
  CACHALOT_OK(check_expert_profile_out(options.storage));
  CACHALOT_OK(place_memory(options.memory));
  CACHALOT_TRY(auto opened, Checkpoint::open(options.model));
  EngineOptions engine = engine_options(options, opened.config());
  CACHALOT_OK(check_expert_cache(options, opened));
  for (const std::string& warning : opened.warnings()) report("warning: {}\n", warning);
  return OpenedModel{std::make_shared<const Checkpoint>(std::move(opened)), std::move(engine)};
}

Result<LoadedModel> load_model(const ModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  CACHALOT_TRY(const OpenedModel opened, open_model(options));
  CACHALOT_TRY(LoadedModel model, load_model(options, opened));
  model.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return model;
}

Result<LoadedModel> load_model(const ModelOptions& options, const OpenedModel& opened) {
  const auto& [checkpoint, engine_settings] = opened;
  CACHALOT_OK(keep_checkpoint(options.memory, *checkpoint, options.on_progress));
  const ModelConfig& config = checkpoint->config();
  CACHALOT_TRY(Tokenizer tokenizer, Tokenizer::load(options.model));
  if (tokenizer.vocab_size() != config.vocab_size)
    return fail("{}: tokenizer.json has {} tokens, config.json says vocab_size {}", options.model,
                tokenizer.vocab_size(), config.vocab_size);
  CACHALOT_TRY(GenerationConfig generation,
               load_generation_config(options.model, config.vocab_size));
  if (generation.end_tokens.empty())
    generation.end_tokens = {static_cast<int32_t>(config.eos_token_id)};
  CACHALOT_TRY(EngramTokenMap classes, engram_token_map(tokenizer));
  CACHALOT_TRY(auto engine, make_engine(checkpoint, std::move(classes.class_of), engine_settings));
  PictureOptions pictures{
      .encoder = {.threads = engine_settings.threads, .isa = engine_settings.isa},
      .local_files = options.local_pictures,
      .fetcher = options.fetcher};
  if (engine_settings.backend != Backend::checked) {
    pictures.encoder.backend = engine_settings.backend;
  }
  return LoadedModel{.checkpoint = checkpoint,
                     .tokenizer = std::move(tokenizer),
                     .engine = std::move(engine),
                     .generation = std::move(generation),
                     .pictures = std::make_shared<PictureReader>(checkpoint, pictures)};
}

}  // namespace cachalot
