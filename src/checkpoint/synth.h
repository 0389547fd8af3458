// Random checkpoints in the released layout: same files, names, dtypes, scales and configuration,
// written as fast as the disk takes them. For tests, and for timing a size nobody has downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/result.h"
#include "checkpoint/config.h"

namespace cachalot {

// What to change of a configuration before writing a checkpoint of it.
struct SynthReduction {
  std::optional<int64_t> layers;       // keep this many; sources, targets, engram above are dropped
  std::optional<int64_t> experts;      // routed experts per layer; draft stages: at most as many
  std::optional<int64_t> engram_rows;  // bucket size; without it tables shrink to kEngramBytes
};

// The engram tables' size, scales included, where nothing else is asked for.
inline constexpr int64_t kEngramBytes = 1'000'000'000;

// Drafts stay if one of their target layers stays. Primes and table rows are computed anew.
// Errors: a number out of range, or a result that is not a valid configuration.
Result<ModelConfig> reduced_config(ModelConfig config, const SynthReduction& reduction);

// Reads a configuration from a file of either form or from a checkpoint folder.
Result<ModelConfig> config_at(const std::filesystem::path& path);

struct SynthOptions {
  uint64_t seed = 0;  // same seed, same bytes, whatever the number of threads
  int threads = 0;    // 0: one per core, at most 16
  // Called now and then, by one thread at a time, with the bytes written and to be written.
  std::function<void(int64_t, int64_t)> progress = {};
  // Asked as often; true ends the writing with an error.
  std::function<bool()> cancelled = {};
};

// Writes the checkpoint into a new folder, which appears under its name when it is complete.
// A tokenizer is copied from `tokenizer_folder` if there is one.
// Errors: the folder exists, too little space, the disk refuses, cancelled; then nothing is left
// behind.
Status write_random_checkpoint(const ModelConfig& config, const std::filesystem::path& out,
                               const std::filesystem::path& tokenizer_folder,
                               const SynthOptions& options);

}  // namespace cachalot
