#include "engine/sequences.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {

Sequences::Sequences(const Caches& caches)
    : page_tokens_(caches.page_tokens()),
      pages_per_slot_(caches.pages_per_slot()),
      rollback_(caches.options().rollback),
      sequences_(static_cast<size_t>(caches.options().slots)),
      table_(static_cast<size_t>(caches.options().slots * caches.pages_per_slot()), -1) {
  for (int64_t page = caches.pages(); page-- > 0;) {
    free_pages_.push_back(static_cast<int32_t>(page));
  }
}

Result<int32_t> Sequences::open() {
  for (size_t slot = 0; slot < sequences_.size(); ++slot) {
    if (sequences_[slot].open) continue;
    sequences_[slot] = {.open = true};
    return static_cast<int32_t>(slot);
  }
  return fail("all {} sequences are in use; close one or allow more", sequences_.size());
}

bool Sequences::is_open(int32_t sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() && at(sequence).open;
}

void Sequences::release_pages(int32_t sequence) {
  int32_t* row = table_.data() + sequence * pages_per_slot_;
  free_pages_.insert(free_pages_.end(), row, row + at(sequence).pages);
  std::fill(row, row + at(sequence).pages, -1);
  at(sequence).pages = 0;
}

void Sequences::close(int32_t sequence) {
  CACHALOT_CHECK(is_open(sequence), "sequence {}", sequence);
  release_pages(sequence);
  at(sequence) = {};
}

void Sequences::extend(int32_t sequence, int64_t tokens, StepPart part) {
  Sequence& state = at(sequence);
  state.length += tokens;
  state.written = std::max(state.written, state.length);
  if (part == StepPart::whole) state.upper_length = state.length;
  const int64_t needed = (state.length + page_tokens_ - 1) / page_tokens_;
  CACHALOT_CHECK(needed <= pages_per_slot_, "sequence {} of {} tokens", sequence, state.length);
  for (; state.pages < needed; ++state.pages) {
    table_[static_cast<size_t>(sequence * pages_per_slot_ + state.pages)] = free_pages_.back();
    free_pages_.pop_back();
  }
}

void Sequences::catch_up(int32_t sequence, int64_t tokens) {
  Sequence& state = at(sequence);
  const int64_t first = state.length - tokens;
  if (first > state.upper_length) state.window_start = first;
  state.upper_length = state.length;
}

Status Sequences::truncate(int32_t sequence, int64_t length) {
  if (!is_open(sequence)) return fail("sequence {} is not open", sequence);
  Sequence& state = at(sequence);
  if (length < 0 || length > state.length) {
    return fail("sequence {} holds {} tokens, cannot be cut to {}", sequence, state.length, length);
  }
  if (length == 0) {
    release_pages(sequence);
    state = {.open = true};
    return {};
  }
  const int64_t least = std::max<int64_t>(0, state.written - rollback_);
  if (length < least) {
    return fail(
        "sequence {} can be cut back to {} tokens at least (to 0 to start over), {} asked; allow a "
        "longer rollback",
        sequence, least, length);
  }
  state.length = length;
  state.upper_length = std::min(state.upper_length, length);
  state.window_start = std::min(state.window_start, length);
  return {};
}

View<const int32_t> Sequences::page_table() const {
  return {table_.data(), {static_cast<int64_t>(sequences_.size()), pages_per_slot_}};
}

}  // namespace cachalot
