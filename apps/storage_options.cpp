#include "storage_options.h"

#include <cmath>

#include "base/written_file.h"
#include "engine/expert_profile.h"
#include "number_options.h"
#include "usage_error.h"

namespace cachalot {
namespace {

double hit_rate(int64_t hits, int64_t misses) {
  return hits + misses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(hits + misses);
}

// Microseconds and millionths are as fine as these are known.
Json rounded(double value) { return Json(std::round(value * 1e6) / 1e6); }

template <class Statistics>
Json::Object counts_json(const Statistics& statistics) {
  return {{"hits", Json::integer(statistics.hits)},
          {"misses", Json::integer(statistics.misses)},
          {"hit_rate", rounded(hit_rate(statistics.hits, statistics.misses))},
          {"bytes_read", Json::integer(statistics.bytes_read)},
          {"wait_seconds", rounded(statistics.wait_seconds)}};
}

template <class Statistics>
std::string counts_text(const Statistics& statistics) {
  return fmt::format("{:.1f} % of {} from memory, {:.2f} GB read, {:.2f} s waited",
                     100 * hit_rate(statistics.hits, statistics.misses),
                     statistics.hits + statistics.misses,
                     static_cast<double>(statistics.bytes_read) / 1e9, statistics.wait_seconds);
}

}  // namespace

void add_storage_options(CLI::App& command, StorageChoice& options) {
  constexpr const char* kGroup = "Weights on disk";
  command
      .add_option("--expert-cache", options.expert_cache,
                  "Read experts from disk when they are chosen, and keep as many as fit into SIZE "
                  "(16GiB, 500MB); without it they are used from the mapping")
      ->transform(size_in_bytes())
      ->type_name("SIZE")
      ->group(kGroup);
  command
      .add_option("--engram-cache", options.engram_cache,
                  "The same for rows of the engram tables; 0 keeps none")
      ->transform(size_in_bytes())
      ->type_name("SIZE")
      ->group(kGroup);
  command
      .add_option("--expert-profile", options.expert_profile,
                  "Keep the experts that FILE names most often in the GPU's memory and in that of "
                  "--expert-cache from the start")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--expert-profile-out", options.expert_profile_out,
                  "Write to FILE how often each expert was chosen")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--storage-io", options.reader,
                  "How files are read: io_uring; threads; auto (io_uring where it is permitted)")
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->capture_default_str()
      ->group(kGroup);
}

void apply_storage_options(const StorageChoice& options, EngineOptions& engine) {
  engine.storage.expert_bytes = options.expert_cache;
  engine.storage.row_bytes = options.engram_cache;
  engine.expert_profile = options.expert_profile;
  if (options.reader == "io_uring") engine.storage.reader = ReaderKind::io_uring;
  if (options.reader == "threads") engine.storage.reader = ReaderKind::threads;
}

void check_storage_options(const StorageChoice& options, const EngineOptions& engine) {
  const bool on_gpu = engine.backend == Backend::cuda && engine.experts_on != ExpertsOn::cpu;
  if (!options.expert_cache && !on_gpu && !options.expert_profile.empty()) {
    usage_error(
        "--expert-profile: expected --expert-cache SIZE with it, or --device cuda without "
        "--experts cpu");
  }
  if (options.expert_profile_out.empty()) return;
  if (!options.expert_cache) {
    usage_error("--expert-profile-out: expected --expert-cache SIZE with it");
  }
  if (on_gpu) {
    usage_error("--expert-profile-out: expected --device cpu or --experts cpu with it");
  }
}

Status check_expert_profile_out(const StorageChoice& options) {
  if (options.expert_profile_out.empty()) return {};
  return check_writable(options.expert_profile_out);
}

Status save_expert_profile(const StorageChoice& options, const Engine& engine) {
  if (options.expert_profile_out.empty()) return {};
  return write_expert_profile(options.expert_profile_out, {engine.storage()->experts()->uses()},
                              engine.config());
}

Json storage_json(const WeightStoreStatistics& statistics) {
  Json result(
      Json::Object{{"reader", Json(statistics.reader)}, {"direct", Json(statistics.direct)}});
  if (const auto& experts = statistics.experts) {
    Json::Object object = counts_json(*experts);
    object.emplace_back("slots", Json::integer(experts->slots));
    object.emplace_back("slot_bytes", Json::integer(experts->slot_bytes));
    object.emplace_back("pinned", Json::integer(experts->pinned));
    result.set("experts", Json(std::move(object)));
  }
  if (const auto& rows = statistics.rows) {
    Json::Object object = counts_json(*rows);
    object.emplace_back("capacity", Json::integer(rows->capacity));
    result.set("engram_rows", Json(std::move(object)));
  }
  return result;
}

std::string storage_line(const WeightStoreStatistics& statistics) {
  std::string line = statistics.reader;
  if (!statistics.direct) line += ", through the page cache";
  if (statistics.experts) line += " | experts " + counts_text(*statistics.experts);
  if (statistics.rows) line += " | engram rows " + counts_text(*statistics.rows);
  return line;
}

}  // namespace cachalot
