// --device, --experts, --gpu-memory: what computes, and what of the model lies on a GPU.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/engine.h"

namespace cachalot {

struct GpuChoice {
  std::string device = "auto";
  std::string experts = "auto";
  int64_t memory = 0;  // bytes, 0: what is free

  bool asked_for() const { return device == "cuda"; }
};

void add_gpu_options(CLI::App& command, GpuChoice& options);

// Sets the backend, where it is the CPU so far, to the GPU if that is asked for or, with auto, is
// there and computes what the other options want. Wrong usage: an option that needs --device cuda.
void apply_gpu_options(const GpuChoice& options, EngineOptions& engine);

}  // namespace cachalot
