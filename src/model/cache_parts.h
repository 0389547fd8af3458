// The bytes that make up a page of the caches, or a sequence's place in their rings, part by part
// and in a fixed order: what is copied when a sequence is saved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "model/caches.h"

namespace cachalot {

// Rows first..first + count - 1 of cache[index].
template <class T>
std::span<std::byte> cache_rows(View<T> cache, int64_t index, int64_t first, int64_t count) {
  const int64_t row = cache.stride() / cache.extent(1);
  return std::as_writable_bytes(
      std::span(cache.row(index) + first * row, static_cast<size_t>(count * row)));
}

// What the first `tokens` positions of a page have left in it. A group that is not full has no row
// yet.
template <class F>
void for_each_page_part(const Caches& caches, int32_t page, int64_t tokens, F&& f) {
  for (const auto& [layer, source] : caches.sources()) {
    const int64_t rows = tokens * source.latents.extent(1) / caches.page_tokens();
    f(cache_rows(source.latents, page, 0, rows));
    f(cache_rows(source.index_keys, page, 0, rows));
  }
  f(cache_rows(caches.token_classes(), page, 0, tokens));
}

// Positions first..end - 1 of a slot's ring, ascending. They fit in the ring.
template <class T, class F>
void for_each_ring_part(View<T> ring, int64_t slot, int64_t first, int64_t end, F&& f) {
  const int64_t size = ring.extent(1);
  while (first < end) {
    const int64_t at = first % size, count = std::min(end - first, size - at);
    f(cache_rows(ring, slot, at, count));
    first += count;
  }
}

}  // namespace cachalot
