#include "engine/saved_sequence.h"

#include "model/cache_parts.h"

namespace cachalot {
namespace {

// The positions of a ring that may still be read, after a rollback too.
template <class T, class F>
void for_each_live_part(View<T> ring, const SequenceProgress& progress, int64_t slot, F&& f) {
  const int64_t first = std::max<int64_t>(0, progress.written - ring.extent(1));
  for_each_ring_part(ring, slot, first, progress.length, f);
}

// Everything that is copied of a sequence, in the order of the copy.
template <class F>
void for_each_copied_part(const Caches& caches, const SequenceProgress& progress, int64_t slot,
                          int32_t last_page, F&& f) {
  for (const View<uint8_t>& window : caches.windows()) {
    for_each_live_part(window, progress, slot, f);
  }
  for (const auto& [layer, source] : caches.sources()) {
    if (source.open_rows.present()) for_each_live_part(source.open_rows, progress, slot, f);
  }
  if (progress.upper_length < progress.length) {
    for_each_live_part(caches.kept_copies(), progress, slot, f);
    for_each_live_part(caches.kept_mixes(), progress, slot, f);
  }
  for_each_page_part(caches, last_page, progress.length % caches.page_tokens(), f);
}

}  // namespace

int64_t copied_bytes(const Caches& caches, const SequenceProgress& progress) {
  int64_t bytes = 0;
  for_each_copied_part(caches, progress, 0, 0,
                       [&](std::span<std::byte> part) { bytes += std::ssize(part); });
  return bytes;
}

std::vector<std::byte> copy_out(const Caches& caches, const SequenceProgress& progress,
                                int64_t slot, int32_t last_page) {
  std::vector<std::byte> copied;
  copied.reserve(static_cast<size_t>(copied_bytes(caches, progress)));
  for_each_copied_part(caches, progress, slot, last_page, [&](std::span<std::byte> part) {
    const size_t at = copied.size();
    copied.resize(at + part.size());
    caches.memory().copy(copied.data() + at, part.data(), part.size());
  });
  return copied;
}

void copy_in(const Caches& caches, const SequenceProgress& progress, int64_t slot,
             int32_t last_page, std::span<const std::byte> copied) {
  for_each_copied_part(caches, progress, slot, last_page, [&](std::span<std::byte> part) {
    CACHALOT_CHECK(part.size() <= copied.size(), "a state of another engine");
    caches.memory().copy(part.data(), copied.data(), part.size());
    copied = copied.subspan(part.size());
  });
  CACHALOT_CHECK(copied.empty(), "a state of another engine");
}

int64_t page_bytes(const Caches& caches) {
  int64_t bytes = 0;
  for_each_page_part(caches, 0, caches.page_tokens(),
                     [&](std::span<std::byte> part) { bytes += std::ssize(part); });
  return bytes;
}

void copy_page_out(const Caches& caches, int32_t page, std::span<std::byte> to) {
  for_each_page_part(caches, page, caches.page_tokens(), [&](std::span<std::byte> part) {
    caches.memory().copy(to.data(), part.data(), part.size());
    to = to.subspan(part.size());
  });
}

void copy_page_in(const Caches& caches, int32_t page, std::span<const std::byte> from) {
  for_each_page_part(caches, page, caches.page_tokens(), [&](std::span<std::byte> part) {
    caches.memory().copy(part.data(), from.data(), part.size());
    from = from.subspan(part.size());
  });
}

void copy_page(const Caches& caches, int32_t from, int32_t to, int64_t tokens) {
  std::vector<std::span<const std::byte>> parts;
  for_each_page_part(caches, from, tokens,
                     [&](std::span<std::byte> part) { parts.push_back(part); });
  size_t next = 0;
  for_each_page_part(caches, to, tokens, [&](std::span<std::byte> part) {
    caches.memory().copy(part.data(), parts[next].data(), part.size());
    ++next;
  });
}

}  // namespace cachalot
