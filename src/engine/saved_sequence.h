// A place in a sequence to go on from: full pages by reference, everything else copied.
//
// Copied are the rows that may still be read, `rollback` included: of every window (draft stages
// too), of the open groups, of the stream ring if the upper layers are behind, and of the last page
// if it is not full. The copy has no page numbers in it and depends on the model and on
// EngineOptions::rollback alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/page_pool.h"
#include "model/caches.h"

namespace cachalot {

// How far a sequence has come.
struct SequenceProgress {
  int64_t length = 0;
  // The longest the sequence has been: its rings hold the rows before this, not before `length`.
  int64_t written = 0;
  // The upper layers lag behind `length` between lower steps and the upper one; then what they
  // skipped is missing from their windows, which start at window_start.
  int64_t upper_length = 0, window_start = 0;

  bool operator==(const SequenceProgress&) const = default;
};

// Immutable; its pages are free when it is gone and no sequence or other state uses them.
class SavedSequence {
 public:
  SavedSequence(const SequenceProgress& progress, std::vector<std::byte> copied,
                std::shared_ptr<PagePool> pool, std::span<const int32_t> pages)
      : progress_(progress), copied_(std::move(copied)), pages_(std::move(pool), pages) {}

  int64_t length() const { return progress_.length; }
  const SequenceProgress& progress() const { return progress_; }
  // What it copied, in bytes; pages come on top, shared with whoever else uses them.
  int64_t bytes() const { return std::ssize(copied_); }
  std::span<const std::byte> copied() const { return copied_; }
  std::span<const int32_t> pages() const { return pages_.pages(); }  // the full ones, in order
  // Sequences and states that use one of them, this one included.
  int64_t users_of(int32_t page) const { return pages_.users_of(page); }

 private:
  SequenceProgress progress_;
  std::vector<std::byte> copied_;
  SharedPages pages_;
};

// Bytes a state copies in all.
int64_t copied_bytes(const Caches& caches, const SequenceProgress& progress);

// Between the caches, `slot` and its last page, and a state's copy. last_page: any if the length
// is a multiple of the page.
std::vector<std::byte> copy_out(const Caches& caches, const SequenceProgress& progress,
                                int64_t slot, int32_t last_page);
void copy_in(const Caches& caches, const SequenceProgress& progress, int64_t slot,
             int32_t last_page, std::span<const std::byte> copied);

// Of a full page.
int64_t page_bytes(const Caches& caches);

// A full page, [page_bytes].
void copy_page_out(const Caches& caches, int32_t page, std::span<std::byte> to);
void copy_page_in(const Caches& caches, int32_t page, std::span<const std::byte> from);

// The first `tokens` positions of a page.
void copy_page(const Caches& caches, int32_t from, int32_t to, int64_t tokens);

}  // namespace cachalot
