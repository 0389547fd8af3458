// A model folder -> everything a command needs to generate text.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/prefill.h"
#include "generation_config.h"
#include "gpu_options.h"
#include "memory_options.h"
#include "pictures/picture_reader.h"
#include "storage_options.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

struct ModelOptions {
  std::string model;
  int threads = 0;
  std::string isa;
  std::string backend = "cpu";
  GpuChoice gpu;
  int64_t context = 0;
  int64_t max_sequences = 1;
  int64_t chunk = 512;
  std::string activations = "fp8";
  std::string prefill = "exact";
  int64_t prefill_tail = 0;  // 0: the window's size
  StorageChoice storage;
  MemoryOptions memory;
  bool local_pictures = true;              // pictures may be files of this machine
  std::shared_ptr<const Fetcher> fetcher;  // of pictures that lie elsewhere; nullptr: none are
  // How much has been read, of what takes long: with --mlock, the checkpoint. May be empty.
  std::function<void(double share)> on_progress;
  bool watchable = false;  // steps can be looked into

  PrefillMode prefill_mode() const {
    return prefill == "shortcut" ? PrefillMode::shortcut : PrefillMode::exact;
  }
};

// -m, --threads, --isa, --backend, --device, --experts, --gpu-memory, --context, --chunk, --mlock,
// --numa. A command that takes the model in another way leaves out -m.
void add_model_option(CLI::App& command, ModelOptions& options);
void add_engine_options(CLI::App& command, ModelOptions& options);
// --prefill, --prefill-tail
void add_prefill_options(CLI::App& command, ModelOptions& options);

struct LoadedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  Tokenizer tokenizer;
  std::unique_ptr<Engine> engine;
  GenerationConfig generation;  // end_tokens filled from the configuration if need be
  double load_seconds = 0;      // opening included; 0 where that was done apart
  std::shared_ptr<PictureReader> pictures;

  const ModelConfig& config() const { return engine->config(); }
};

// A checkpoint's headers, and what the options mean for it.
struct OpenedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  EngineOptions engine;
};
// Without what takes long. Wrong usage ends the program; errors: see Checkpoint::open. Warnings of
// the checkpoint go to stderr.
Result<OpenedModel> open_model(const ModelOptions& options);

// Errors: see Tokenizer::load, make_engine; a vocabulary of the tokenizer that differs from the
// checkpoint's.
Result<LoadedModel> load_model(const ModelOptions& options, const OpenedModel& opened);
// Both.
Result<LoadedModel> load_model(const ModelOptions& options);

}  // namespace cachalot
