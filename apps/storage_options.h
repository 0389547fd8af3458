// The options of experts and engram rows beyond memory, and what is reported about them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "chat/json_value.h"
#include "engine/engine.h"

namespace cachalot {

struct StorageChoice {
  std::optional<int64_t> expert_cache, engram_cache;  // bytes
  std::string expert_profile, expert_profile_out;
  std::string reader = "auto";
};

// --expert-cache, --engram-cache, --expert-profile, --expert-profile-out, --storage-io
void add_storage_options(CLI::App& command, StorageChoice& options);

void apply_storage_options(const StorageChoice& options, EngineOptions& engine);
// Once the backend is known. Wrong usage: an option without the one it needs.
void check_storage_options(const StorageChoice& options, const EngineOptions& engine);

// For --expert-profile-out, if it was given: before anything is computed, and at the end.
Status check_expert_profile_out(const StorageChoice& options);
Status save_expert_profile(const StorageChoice& options, const Engine& engine);

// {"reader", "direct", "experts": {...}, "engram_rows": {...}}
Json storage_json(const WeightStoreStatistics& statistics);
// "io_uring | experts 84.2 % of 1200 from memory, 3.57 GB read, 1.2 s waited | engram rows ..."
std::string storage_line(const WeightStoreStatistics& statistics);

}  // namespace cachalot
