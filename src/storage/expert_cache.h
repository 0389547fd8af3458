// ExpertCache: the experts that are in memory, within a budget of bytes.
//
// An operation asks for the experts its tokens chose and gets those in memory at once, the others
// as they arrive. Where the budget is smaller than the set, they come in rounds: what has been used
// makes room for what is still wanted. Which expert comes when never enters a result.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "storage/expert_layout.h"
#include "storage/file_reader.h"
#include "storage/slab.h"
#include "storage/use_forecast.h"

namespace cachalot {

struct ExpertCacheStatistics {
  int64_t slots = 0;       // experts that fit
  int64_t slot_bytes = 0;  // of one
  int64_t pinned = 0;      // of them never evicted
  int64_t hits = 0;        // experts wanted by an operation and in memory
  int64_t misses = 0;
  int64_t bytes_read = 0;
  double wait_seconds = 0;  // nothing to compute with until a read came back
};

// An expert whose weights are in memory.
struct ReadyExpert {
  size_t use = 0;  // index among the uses asked for
  ExpertParts parts;
};

// One caller at a time (the queue's thread); the reader's threads answer.
class ExpertCache final : public ReadListener {
 public:
  // Layers in the order they run; `reader` outlives the cache. Errors: a budget without room for
  // one expert (the message says how much that is), or beyond this machine's memory.
  static Result<std::unique_ptr<ExpertCache>> make(
      FileReader& reader, const FileMap& files, std::span<const std::vector<MappedExpert>> layers,
      int64_t budget_bytes);

  // The least budget: room for one expert.
  static int64_t least_bytes(const FileMap& files,
                             std::span<const std::vector<MappedExpert>> layers);

  // Waits for the reads in flight.
  ~ExpertCache() override;

  // The layer this of whose experts has its first tensor here, if it is one of the cache's.
  std::optional<size_t> layer_at(const void* codes, size_t expert) const;

  // Asks for experts of a layer; all that fit are on their way when it returns. `uses` ascending by
  // expert, chosen among `tokens` tokens; it stays valid until the operation is over.
  void begin(size_t layer, std::span<const ExpertUse> uses, int64_t tokens);
  // Those in memory already, which may be none. The first call after begin().
  std::span<const ReadyExpert> resident();
  // More of them, until the result is empty: all have been handed out. Those handed out before are
  // given back. Waits. Errors: a read failed; the operation is over.
  Result<std::span<const ReadyExpert>> next();
  // Gives back what was handed out; the operation may end early.
  void end();

  // An expert of the profile, hottest first.
  struct HotExpert {
    size_t layer = 0, expert = 0;
    double share = 0;  // of tokens
  };
  // Reads the hottest experts that fit, less `spare` slots, and never evicts them. Once, before the
  // first operation.
  Status pin(std::span<const HotExpert> hot, int64_t spare);

  ExpertCacheStatistics statistics() const;
  // How often tokens chose each expert, by layer.
  const std::vector<std::vector<int64_t>>& uses() const { return token_counts_; }

  void read_done(const FileRead& read, const Status& status) override;

 private:
  static constexpr int32_t kNone = -1;

  struct Expert {
    const void* codes = nullptr;  // where its first tensor is mapped
    ExpertLayout layout;
    size_t layer = 0, index = 0;
    int32_t slot = kNone;
  };
  struct Slot {
    int32_t expert = kNone;
    int64_t reads = 0;  // in flight
    std::optional<Error> error;
    bool leased = false;  // wanted by the running operation
    bool pinned = false;
  };

  explicit ExpertCache(FileReader& reader) : reader_(reader), forecast_({}) {}

  std::byte* memory_of(size_t slot) const {
    return slab_.data() + static_cast<int64_t>(slot) * statistics_.slot_bytes;
  }
  Expert& expert_of(const ExpertUse& use) {
    return experts_[first_of_[layer_] + static_cast<size_t>(use.expert)];
  }
  void choose_slots(size_t count);
  void load(Expert& expert, size_t slot);
  void admit();
  void collect();
  void give_back();

  FileReader& reader_;
  Slab slab_;
  std::vector<Expert> experts_;  // layer by layer
  std::vector<size_t> first_of_;
  std::vector<std::vector<int64_t>> token_counts_;
  UseForecast forecast_;

  // The running operation.
  size_t layer_ = 0;
  std::span<const ExpertUse> uses_;
  std::vector<bool> handed_out_;
  size_t admitted_ = 0;  // of uses_, in order, have a slot
  size_t left_ = 0;      // not handed out yet
  std::vector<ReadyExpert> ready_;
  std::vector<FileRead> reads_;
  std::vector<std::pair<double, size_t>> candidates_;  // distance negated, slot

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Slot> slots_;  // guarded by mutex_, as is all below
  int64_t in_flight_ = 0;
  std::optional<Error> failure_;
  ExpertCacheStatistics statistics_;
};

}  // namespace cachalot
