// Opens a model folder the way the program does, with the token classes `tokenize --map` wrote of
// its tokenizer.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/token_classes.h"
#include "engine/engine.h"

namespace cachalot::test {

inline std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(CACHALOT_SOURCE_DIR) / "tests/data" / name;
}

inline std::filesystem::path nano_path() {
  return std::filesystem::path(CACHALOT_SOURCE_DIR) / "models/nano";
}

inline std::shared_ptr<const Checkpoint> open_checkpoint(const std::filesystem::path& folder) {
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return std::make_shared<const Checkpoint>(std::move(*checkpoint));
}

// What tests of the CPU's engine run on: the GPU in the executable gpu_engine_test.
#ifdef CACHALOT_TEST_ON_GPU
inline constexpr Backend kTestBackend = Backend::cuda;
#else
inline constexpr Backend kTestBackend = Backend::cpu;
#endif

// EngineOptions or ImageEncoderOptions.
template <class Options>
Options on_test_backend(Options options) {
  if (options.backend == Backend::cpu) options.backend = kTestBackend;
  return options;
}

inline std::vector<int32_t> token_classes_of(const std::filesystem::path& folder) {
  auto classes =
      read_token_classes(data_path("token_classes") / (folder.filename().string() + ".i32le"));
  if (!classes) throw std::runtime_error(classes.error().message);
  return std::move(*classes);
}

inline std::unique_ptr<Engine> open_engine(const std::filesystem::path& folder,
                                           std::vector<int32_t> token_classes,
                                           const EngineOptions& options) {
  auto engine =
      make_engine(open_checkpoint(folder), std::move(token_classes), on_test_backend(options));
  if (!engine) throw std::runtime_error(engine.error().message);
  return std::move(*engine);
}

inline std::unique_ptr<Engine> open_engine(const std::filesystem::path& folder,
                                           const EngineOptions& options) {
  return open_engine(folder, token_classes_of(folder), options);
}

inline std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas) {
    if (supports(isa)) isas.push_back(isa);
  }
  return isas;
}

}  // namespace cachalot::test
