#include "memory_options.h"

#include <unistd.h>

#include "base/memory_placement.h"
#include "checkpoint/huge_pages.h"
#include "report.h"

namespace cachalot {

void add_memory_options(CLI::App& command, MemoryOptions& options) {
  constexpr const char* kGroup = "Engine";
  command
      .add_flag("--huge-pages", options.huge_pages,
                "Read the checkpoint at start, all but engram tables, into memory of 2 MB pages: "
                "replies are faster")
      ->group(kGroup);
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

Status keep_checkpoint(const MemoryOptions& options, const Checkpoint& checkpoint,
                       const std::function<void(double share)>& on_progress) {
  const bool terminal = ::isatty(STDERR_FILENO);
  const auto show = [&](const char* what, int64_t done, int64_t total) {
    const double now = static_cast<double>(done), all = static_cast<double>(total);
    if (on_progress) on_progress(now / all);
    if (terminal) report("\r{} {:.1f} of {:.1f} GB", what, now / 1e9, all / 1e9);
  };
  if (options.huge_pages) {
    const Status status = use_huge_pages(checkpoint, [&](int64_t done, int64_t total) {
      show("reading into huge pages", done, total);
    });
    if (!status) return fail(status.error().in("--huge-pages"));
  }
  if (options.lock) {
    int64_t total = 0, before = 0;
    for (const ShardFile& file : checkpoint.files()) total += std::ssize(file.mapping.bytes());
    for (const ShardFile& file : checkpoint.files()) {
      const auto mapping = file.mapping.bytes();
      const Status status = lock_memory(
          mapping, [&](int64_t done) { show("locking in memory", before + done, total); });
      if (!status) return fail(status.error().in("--mlock"));
      before += std::ssize(mapping);
    }
  }
  if (terminal && (options.huge_pages || options.lock)) report("\r\033[K");
  return {};
}

}  // namespace cachalot
