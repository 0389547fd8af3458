#include "engine/sequences.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {

Sequences::Sequences(const Caches& caches)
    : caches_(caches),
      page_tokens_(caches.page_tokens()),
      pages_per_slot_(caches.pages_per_slot()),
      rollback_(caches.options().rollback),
      pool_(std::make_shared<PagePool>(caches.pages())),
      sequences_(static_cast<size_t>(caches.options().slots)),
      table_(static_cast<size_t>(caches.options().slots * caches.pages_per_slot()), -1) {}

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

// Lets go of the pages behind the first `count`.
void Sequences::keep_pages(int32_t sequence, int64_t count) {
  const auto dropped = table_row(sequence)
                           .first(static_cast<size_t>(at(sequence).pages))
                           .subspan(static_cast<size_t>(count));
  pool_->release(dropped);
  std::ranges::fill(dropped, -1);
  at(sequence).pages = count;
}

void Sequences::close(int32_t sequence) {
  CACHALOT_CHECK(is_open(sequence), "sequence {}", sequence);
  keep_pages(sequence, 0);
  at(sequence) = {};
}

// Whether the next token falls into a page that others use, too: one that was full when a state was
// saved or restored, and was cut into afterwards.
bool Sequences::last_page_is_shared(int32_t sequence) const {
  return at(sequence).progress.length % page_tokens_ != 0 && pool_->shared(pages(sequence).back());
}

int64_t Sequences::pages_for(int32_t sequence, int64_t tokens) const {
  if (!is_open(sequence) || tokens <= 0) return 0;
  const int64_t added = pages_of(length(sequence) + tokens) - at(sequence).pages;
  return added + (last_page_is_shared(sequence) ? 1 : 0);
}

void Sequences::extend(int32_t sequence, int64_t tokens, StepPart part) {
  Sequence& state = at(sequence);
  SequenceProgress& progress = state.progress;
  const std::span<int32_t> row = table_row(sequence);
  if (last_page_is_shared(sequence)) {
    int32_t& last = row[static_cast<size_t>(state.pages - 1)];
    const int32_t own = pool_->take();
    copy_page(caches_, last, own, progress.length % page_tokens_);
    pool_->release({&last, 1});
    last = own;
  }
  progress.length += tokens;
  progress.written = std::max(progress.written, progress.length);
  if (part == StepPart::whole) progress.upper_length = progress.length;
  const int64_t needed = pages_of(progress.length);
  CACHALOT_CHECK(needed <= pages_per_slot_, "sequence {} of {} tokens", sequence, progress.length);
  for (; state.pages < needed; ++state.pages) {
    row[static_cast<size_t>(state.pages)] = pool_->take();
  }
}

void Sequences::catch_up(int32_t sequence, int64_t tokens) {
  SequenceProgress& progress = at(sequence).progress;
  const int64_t first = progress.length - tokens;
  if (first > progress.upper_length) progress.window_start = first;
  progress.upper_length = progress.length;
}

Status Sequences::truncate(int32_t sequence, int64_t length) {
  if (!is_open(sequence)) return fail("sequence {} is not open", sequence);
  SequenceProgress& progress = at(sequence).progress;
  if (length < 0 || length > progress.length) {
    return fail("sequence {} holds {} tokens, cannot be cut to {}", sequence, progress.length,
                length);
  }
  if (length == 0) {
    keep_pages(sequence, 0);
    progress = {};
    return {};
  }
  const int64_t least = std::max<int64_t>(0, progress.written - rollback_);
  if (length < least) {
    return fail(
        "sequence {} can be cut back to {} tokens at least (to 0 to start over), {} asked; allow a "
        "longer rollback",
        sequence, least, length);
  }
  progress.length = length;
  progress.upper_length = std::min(progress.upper_length, length);
  progress.window_start = std::min(progress.window_start, length);
  keep_pages(sequence, pages_of(length));
  return {};
}

Result<std::shared_ptr<const SavedSequence>> Sequences::save(int32_t sequence) const {
  if (!is_open(sequence)) return fail("sequence {} is not open", sequence);
  const SequenceProgress& progress = at(sequence).progress;
  if (progress.length == 0) return fail("sequence {} holds no tokens to save", sequence);
  const std::span<const int32_t> held = pages(sequence);
  const auto full = static_cast<size_t>(progress.length / page_tokens_);
  return std::make_shared<const SavedSequence>(
      progress, copy_out(caches_, progress, sequence, held.back()), pool_, held.first(full));
}

Status Sequences::restore(int32_t sequence, const SavedSequence& saved) {
  if (!is_open(sequence)) return fail("sequence {} is not open", sequence);
  if (length(sequence) != 0) {
    return fail("sequence {} holds {} tokens, only an empty one can be restored to a saved state",
                sequence, length(sequence));
  }
  const int64_t full = std::ssize(saved.pages()), needed = pages_of(saved.length());
  CACHALOT_CHECK(full == saved.length() / page_tokens_, "a state of another engine");
  if (needed > full && pool_->free() == 0) {
    return fail("no page is free to restore {} tokens to sequence {}: all {} are in use",
                saved.length(), sequence, pool_->total());
  }
  pool_->share(saved.pages());
  const std::span<int32_t> row = table_row(sequence);
  std::ranges::copy(saved.pages(), row.begin());
  if (needed > full) row[static_cast<size_t>(full)] = pool_->take();
  at(sequence) = {.open = true, .progress = saved.progress(), .pages = needed};
  copy_in(caches_, saved.progress(), sequence, pages(sequence).back(), saved.copied());
  return {};
}

// Foreign numbers: any may come.
Status Sequences::check_loadable(const SequenceProgress& progress,
                                 std::span<const std::byte> copied) const {
  const auto& [length, written, upper, start] = progress;
  if (length < 1 || length > caches_.options().max_context || written < length ||
      written > length + rollback_ || upper < 0 || upper > length || start < 0 || start > upper) {
    return fail("a state of {} tokens, {} written, {} in the upper layers from {} on: impossible",
                length, written, upper, start);
  }
  if ((upper < length || start > 0) && caches_.kept_copies().absent()) {
    return fail("a state of the prefill shortcut, which this engine was opened without");
  }
  const int64_t expected = copied_bytes(caches_, progress);
  if (std::ssize(copied) != expected) {
    return fail("a state of {} tokens with {} bytes, expected {}", length, copied.size(), expected);
  }
  return {};
}

Result<std::shared_ptr<const SavedSequence>> Sequences::load(const SequenceProgress& progress,
                                                             std::vector<std::byte> copied,
                                                             const SavedSequence* begin,
                                                             int64_t shared,
                                                             const FillPage& fill_page) {
  CACHALOT_OK(check_loadable(progress, copied));
  const int64_t full = progress.length / page_tokens_;
  if (begin == nullptr) shared = 0;
  shared = std::min(shared, full);
  if (pool_->free() < full - shared) {
    return fail("{} pages are needed to load {} tokens, {} are free", full - shared,
                progress.length, pool_->free());
  }
  std::vector<int32_t> held;
  if (shared > 0) {
    const auto common = begin->pages().first(static_cast<size_t>(shared));
    held.assign(common.begin(), common.end());
    pool_->share(common);
  }
  std::vector<std::byte> page(static_cast<size_t>(page_bytes(caches_)));
  Status status;
  while (status && std::ssize(held) < full) {
    held.push_back(pool_->take());
    status = fill_page(std::ssize(held) - 1, page);
    if (status) copy_page_in(caches_, held.back(), page);
  }
  std::shared_ptr<const SavedSequence> saved;
  if (status) {
    saved = std::make_shared<const SavedSequence>(progress, std::move(copied), pool_, held);
  }
  pool_->release(held);
  if (!status) return fail(status.error());
  return saved;
}

View<const int32_t> Sequences::page_table() const {
  return {table_.data(), {static_cast<int64_t>(sequences_.size()), pages_per_slot_}};
}

}  // namespace cachalot
