// The model a benchmark runs: weights bound, in memory, with names.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/constants.h"
#include "model/weights.h"

namespace cachalot::bench {

struct BenchModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelConfig config;  // with as many layers as were asked for
  ModelWeights weights;
  ModelConstants constants;
  // The operand a product reads -> its name ("wq_b", "w1 of the shared expert" are not told apart
  // by layer).
  std::unordered_map<const void*, std::string> names;
  std::vector<std::string> notes;

  // layers: the first so many, and no drafts that need others; absent: all. No tokenizer is needed:
  // token classes are made up. Errors: see Checkpoint::open; layers out of range.
  static Result<BenchModel> open(const std::filesystem::path& folder,
                                 std::optional<int64_t> layers);

  // As it would be, of a configuration (a file or a folder), to plan steps: engram tables shrink to
  // a gigabyte. experts: so many a layer; absent: all. Errors: no configuration; layers or experts
  // out of range.
  static Result<BenchModel> planned(const std::filesystem::path& configuration,
                                    std::optional<int64_t> layers, std::optional<int64_t> experts);

  // The same with random weights in `memory`. Errors: these, or no room.
  static Result<BenchModel> made(const std::filesystem::path& configuration,
                                 std::optional<int64_t> layers, std::optional<int64_t> experts,
                                 const MemorySpace& memory);

  // Reads the weights that steps use once, so that no timed step waits for a disk; engram tables
  // only where they are small. Returns what is in memory now: nothing where they do not fit there,
  // and a note says so.
  std::vector<std::span<const std::byte>> warm();

  // "linear.wq_b", "sparse_attention.chosen": an operation with its weight or its way of working.
  std::string name_of(std::string_view operation, std::string_view variant,
                      const void* weight) const;

  // What kind of layer this is: "window", "source", "index", "reuse", "stage", with "_engram".
  std::string kind_of(int64_t layer) const;
};

// Engram classes of token ids, for models without a tokenizer.
std::vector<int32_t> made_up_classes(const ModelConfig& config);

}  // namespace cachalot::bench
