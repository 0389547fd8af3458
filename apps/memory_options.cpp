#include "memory_options.h"

#include <unistd.h>

#include "base/memory_placement.h"
#include "report.h"

namespace cachalot {

void add_memory_options(CLI::App& command, MemoryOptions& options) {
  constexpr const char* kGroup = "Engine";
  command
      .add_flag("--mlock", options.lock,
                "Read the whole checkpoint at start and keep it in memory, whatever else runs")
      ->group(kGroup);
  command
      .add_option("--numa", options.numa,
                  "none (a page lies near the thread that reads it first); interleave (pages go "
                  "round the nodes: even bandwidth, whichever thread reads)")
      ->check(CLI::IsMember({"none", "interleave"}))
      ->capture_default_str()
      ->group(kGroup);
}

Status place_memory(const MemoryOptions& options) {
  if (options.numa == "none") return {};
  const Status status = interleave_memory();
  if (!status) return fail(status.error().in("--numa interleave"));
  return {};
}

Status lock_checkpoint(const MemoryOptions& options, const Checkpoint& checkpoint,
                       const std::function<void(double share)>& on_progress) {
  if (!options.lock) return {};
  int64_t total = 0, before = 0;
  for (const ShardFile& file : checkpoint.files()) total += std::ssize(file.mapping.bytes());
  const bool terminal = ::isatty(STDERR_FILENO);
  for (const ShardFile& file : checkpoint.files()) {
    const auto mapping = file.mapping.bytes();
    const Status status = lock_memory(mapping, [&](int64_t done) {
      if (on_progress) on_progress(static_cast<double>(before + done) / static_cast<double>(total));
      if (!terminal) return;
      report("\rlocking in memory {:.1f} of {:.1f} GB", static_cast<double>(before + done) / 1e9,
             static_cast<double>(total) / 1e9);
    });
    if (!status) return fail(status.error().in("--mlock"));
    before += std::ssize(mapping);
  }
  if (terminal) report("\r\033[K");
  return {};
}

}  // namespace cachalot
