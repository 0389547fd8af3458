// The disk tier of the prefix cache: a folder of segment files (engine/prefix_segment.h), written
// by one process at a time and never changed once written.
//
// States are appended to one segment until it is full. When the budget is reached, the segment that
// was not used for the longest time is deleted as a whole.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_segment.h"

namespace cachalot {

struct PrefixStoreOptions {
  std::filesystem::path directory;  // made if it is not there
  int64_t bytes = 0;                // most bytes of all segments
  // What the bits of a state depend on (engine/cache_fingerprint.h). Segments with another one are
  // left alone.
  std::string fingerprint;
  int64_t segment_bytes = 0;  // 0: an eighth of `bytes`, at most 1 GiB
  std::function<void(const std::string&)> log;
};

// Where a state lies.
struct RecordPlace {
  uint64_t segment = 0;
  int64_t offset = 0;

  bool operator==(const RecordPlace&) const = default;
};

// append() is for one thread, everything else for any.
class PrefixStore {
 public:
  // Calls on_state for every state that is there, older ones first. Errors: the folder cannot be
  // made, read or locked (another process uses it).
  using OnState = std::function<void(const RecordPlace& place, StoredState state)>;
  static Result<std::unique_ptr<PrefixStore>> open(const PrefixStoreOptions& options,
                                                   const OnState& on_state);
  ~PrefixStore();

  // Absent: the state is too large for the budget. Errors: the system's; what was written of the
  // state is taken back.
  Result<std::optional<RecordPlace>> append(const Engine& engine, PrefixKind kind,
                                            const std::vector<int64_t>& key,
                                            const SavedSequence& saved);

  // The state at a place, which must be that of `key` and `kind`. Pages it has in common with
  // `begin` (may be nullptr) are shared. Absent: the engine has too few free pages. Errors: it
  // cannot be read, or is not what was written.
  Result<std::optional<std::shared_ptr<const SavedSequence>>> load(const RecordPlace& place,
                                                                   PrefixKind kind,
                                                                   const std::vector<int64_t>& key,
                                                                   Engine& engine,
                                                                   const SavedSequence* begin);

  // Segments deleted since this was asked last.
  std::vector<uint64_t> take_removed();
  int64_t bytes() const;

 private:
  struct Segment {
    std::filesystem::path path;
    int64_t bytes = 0;
    uint64_t used = 0;  // when it was last, on uses_
  };
  // The one that is written.
  struct Current {
    uint64_t number = 0;
    int descriptor = -1;
    int64_t bytes = 0;
    std::map<Hash128, int64_t> pages;  // offsets of their blocks
  };

  explicit PrefixStore(const PrefixStoreOptions& options);

  Status lock();
  Status scan(const OnState& on_state);
  void scan_file(uint64_t number, const OnState& on_state);
  bool make_room(int64_t bytes);
  bool remove_oldest();
  Status start_segment();
  void end_segment();
  Result<int64_t> write(std::span<const std::byte> bytes);
  Result<PageReference> write_page(std::span<const std::byte> page);
  void touch(uint64_t segment);

  PrefixStoreOptions options_;
  int lock_ = -1;
  std::optional<Current> current_;
  uint64_t next_number_ = 1;

  mutable std::mutex mutex_;
  std::map<uint64_t, Segment> segments_;
  std::vector<uint64_t> removed_;
  uint64_t uses_ = 0;
};

}  // namespace cachalot
