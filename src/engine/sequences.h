// Which sequences are alive, how long they are, and which cache pages they hold.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/page_pool.h"
#include "engine/saved_sequence.h"
#include "model/caches.h"
#include "model/step.h"

namespace cachalot {

class Sequences {
 public:
  // `caches` outlive the sequences.
  explicit Sequences(const Caches& caches);

  Result<int32_t> open();
  void close(int32_t sequence);
  bool is_open(int32_t sequence) const;
  int64_t length(int32_t sequence) const { return at(sequence).progress.length; }

  int64_t free_pages() const { return pool_->free(); }
  // Pages that extending by `tokens` takes.
  int64_t pages_for(int32_t sequence, int64_t tokens) const;
  // There are that many.
  void extend(int32_t sequence, int64_t tokens, StepPart part = StepPart::whole);
  // An upper step of the last `tokens`.
  void catch_up(int32_t sequence, int64_t tokens);
  Status truncate(int32_t sequence, int64_t length);

  // See Engine.
  Result<std::shared_ptr<const SavedSequence>> save(int32_t sequence) const;
  Status restore(int32_t sequence, const SavedSequence& saved);
  using FillPage = std::function<Status(int64_t index, std::span<std::byte> to)>;
  Result<std::shared_ptr<const SavedSequence>> load(const SequenceProgress& progress,
                                                    std::vector<std::byte> copied,
                                                    const SavedSequence* begin, int64_t shared,
                                                    const FillPage& fill_page);

  // Positions before this the upper layers are done with.
  int64_t upper_length(int32_t sequence) const { return at(sequence).progress.upper_length; }
  // The first position in the upper layers' windows.
  int64_t window_start(int32_t sequence) const { return at(sequence).progress.window_start; }

  View<const int32_t> page_table() const;  // [slots, pages per slot]

 private:
  struct Sequence {
    bool open = false;
    SequenceProgress progress;
    int64_t pages = 0;  // as many as the length takes
  };

  const Sequence& at(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  Sequence& at(int32_t sequence) { return sequences_[static_cast<size_t>(sequence)]; }
  int64_t pages_of(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  std::span<int32_t> table_row(int32_t sequence) {
    return std::span(table_).subspan(static_cast<size_t>(sequence * pages_per_slot_),
                                     static_cast<size_t>(pages_per_slot_));
  }
  std::span<const int32_t> pages(int32_t sequence) const {
    return std::span(table_).subspan(static_cast<size_t>(sequence * pages_per_slot_),
                                     static_cast<size_t>(at(sequence).pages));
  }
  Status check_loadable(const SequenceProgress& progress, std::span<const std::byte> copied) const;
  bool last_page_is_shared(int32_t sequence) const;
  void keep_pages(int32_t sequence, int64_t count);

  const Caches& caches_;
  int64_t page_tokens_, pages_per_slot_, rollback_;
  std::shared_ptr<PagePool> pool_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> table_;
};

}  // namespace cachalot
