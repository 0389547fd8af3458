// --huge-pages, --mlock, --numa: where a model's memory lies and whether it stays.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"

namespace cachalot {

struct MemoryOptions {
  bool huge_pages = false, lock = false;
  std::string numa = "none";
};

void add_memory_options(CLI::App& command, MemoryOptions& options);

// Before the model's threads start and its files are touched.
Status place_memory(const MemoryOptions& options);
// Once it is open: reads the checkpoint into huge pages and locks it, as asked, with progress on a
// terminal and to `on_progress` (may be empty), as a share.
Status keep_checkpoint(const MemoryOptions& options, const Checkpoint& checkpoint,
                       const std::function<void(double share)>& on_progress);

}  // namespace cachalot
