// The files of the prefix cache's disk tier: a header, then blocks, only ever appended
// (docs/prefix_cache.md). Every byte is under a checksum; what does not hold is not there.
//
// A page block holds a page of cached tokens, a state block everything else of a saved state; it
// names its pages, which lie before it in the same file. Integers are little-endian.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "engine/saved_sequence.h"

namespace cachalot {

// How a sequence came to be. A state serves whoever wants no more than it has.
struct PrefixKind {
  bool exact = true;    // no part of it was prefilled by the shortcut
  bool drafts = false;  // every step fed the draft head's windows

  bool serves(const PrefixKind& wanted) const {
    return (exact || !wanted.exact) && (drafts || !wanted.drafts);
  }
  bool operator==(const PrefixKind&) const = default;
};

struct PageReference {
  int64_t offset = 0;  // of the page's block
  Hash128 hash = {};   // of its bytes

  bool operator==(const PageReference&) const = default;
};

// What a state block says of a state, without the bytes the state copied.
struct StoredState {
  PrefixKind kind;
  SequenceProgress progress;
  std::vector<int64_t> key;
  std::vector<PageReference> pages;

  bool operator==(const StoredState&) const = default;
};

std::vector<std::byte> segment_header(const std::string& fingerprint);

// A block of any content, with checksums that hold. A scan reads `meta` and skips `body`.
enum class BlockType : uint32_t { page = 1, state = 2 };
std::vector<std::byte> segment_block(BlockType type, std::span<const std::byte> meta,
                                     std::span<const std::byte> body);
std::vector<std::byte> page_block(std::span<const std::byte> page);
std::vector<std::byte> state_block(const StoredState& state, std::span<const std::byte> copied);

// A file, or bytes in its place.
struct SegmentBytes {
  int64_t size = 0;
  // Fills `to` from `offset`; all of it lies within the size. Errors: the system's.
  std::function<Status(int64_t offset, std::span<std::byte> to)> read;
};

// Errors: not a whole header.
Result<std::string> read_fingerprint(const SegmentBytes& bytes);

// Every state block in order, as far as the blocks are whole; page bytes and copies are not read.
// Returns where they end, and in `problem` why there; empty: the file ends.
struct SegmentScan {
  int64_t end = 0;
  std::string problem;
};
SegmentScan scan_segment(const SegmentBytes& bytes,
                         const std::function<void(int64_t offset, StoredState state)>& on_state);

// Errors: no whole state block at the offset; a byte of it has changed.
struct LoadedState {
  StoredState state;
  std::vector<std::byte> copied;
};
Result<LoadedState> read_state(const SegmentBytes& bytes, int64_t offset);

// Errors: no page block of to.size() bytes at the offset; its bytes are not those referred to.
Status read_page(const SegmentBytes& bytes, const PageReference& page, std::span<std::byte> to);

}  // namespace cachalot
