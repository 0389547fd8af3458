// What must hold of any bytes taken for a segment of the prefix cache: for the tests and the
// fuzzer.
#pragma once

#include <cstring>
#include <vector>

#include "base/check.h"
#include "engine/prefix_segment.h"

namespace cachalot::test {

using Bytes = std::vector<std::byte>;

// The bytes outlive it. A read outside of them is a bug of the parser.
inline SegmentBytes in_memory(std::span<const std::byte> file) {
  return {.size = std::ssize(file), .read = [file](int64_t offset, std::span<std::byte> to) {
            CACHALOT_CHECK(offset >= 0 && offset + std::ssize(to) <= std::ssize(file));
            if (!to.empty()) std::memcpy(to.data(), file.data() + offset, to.size());
            return Status();
          }};
}

// States that are found can be written again to the same bytes; nothing reads outside the file.
inline void check_segment(const SegmentBytes& bytes) {
  (void)read_fingerprint(bytes);
  const SegmentScan scan = scan_segment(bytes, [&](int64_t offset, const StoredState& state) {
    CACHALOT_CHECK(state.progress.length == std::ssize(state.key));
    const auto loaded = read_state(bytes, offset);
    if (!loaded) return;
    CACHALOT_CHECK(loaded->state == state);
    Bytes there(state_block(state, loaded->copied).size());
    CACHALOT_CHECK(bytes.read(offset, there).has_value());
    CACHALOT_CHECK(there == state_block(state, loaded->copied));
    Bytes page(64);
    for (const PageReference& reference : state.pages) (void)read_page(bytes, reference, page);
  });
  CACHALOT_CHECK(scan.end >= 0 && scan.end <= bytes.size);
  CACHALOT_CHECK(scan.problem.empty() == (scan.end == bytes.size && bytes.size > 0));
}

}  // namespace cachalot::test
