// Which sequences are alive, how long they are, and which cache pages they hold.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/caches.h"
#include "model/step.h"

namespace cachalot {

class Sequences {
 public:
  explicit Sequences(const Caches& caches);

  Result<int32_t> open();
  void close(int32_t sequence);
  bool is_open(int32_t sequence) const;
  int64_t length(int32_t sequence) const { return at(sequence).length; }

  // The pool holds every sequence's longest context, so pages cannot run out.
  void extend(int32_t sequence, int64_t tokens, StepPart part = StepPart::whole);
  // An upper step of the last `tokens`.
  void catch_up(int32_t sequence, int64_t tokens);
  Status truncate(int32_t sequence, int64_t length);

  // Positions before this the upper layers are done with.
  int64_t upper_length(int32_t sequence) const { return at(sequence).upper_length; }
  // The first position in the upper layers' windows.
  int64_t window_start(int32_t sequence) const { return at(sequence).window_start; }

  View<const int32_t> page_table() const;  // [slots, pages per slot]

 private:
  struct Sequence {
    bool open = false;
    int64_t length = 0;
    // The longest the sequence has been: its rings hold the rows before this, not before `length`.
    int64_t written = 0;
    int64_t pages = 0;
    // The upper layers lag behind `length` between lower steps and the upper one; then what they
    // skipped is missing from their windows.
    int64_t upper_length = 0, window_start = 0;
  };

  const Sequence& at(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  Sequence& at(int32_t sequence) { return sequences_[static_cast<size_t>(sequence)]; }
  void release_pages(int32_t sequence);

  int64_t page_tokens_, pages_per_slot_, rollback_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_pages_;
  std::vector<int32_t> table_;
};

}  // namespace cachalot
