#include "engine/prefix_segment.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/segment_checks.h"

namespace cachalot {
namespace {

using test::Bytes;
using test::in_memory;

Bytes some_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct Written {
  Bytes file;
  std::vector<int64_t> offsets;
  std::vector<StoredState> states;
  std::vector<Bytes> copies, pages;
};

Written two_states() {
  Written written;
  written.file = segment_header("model; settings");
  const auto append = [&](const Bytes& block) {
    const int64_t offset = std::ssize(written.file);
    written.file.insert(written.file.end(), block.begin(), block.end());
    return offset;
  };
  StoredState state{.kind = {.exact = true, .drafts = true},
                    .progress = {.length = 3, .written = 5, .upper_length = 3, .window_start = 0},
                    .key = {7, -8, int64_t{1} << 40},
                    .pages = {}};
  for (uint32_t i = 0; i < 2; ++i) {
    written.pages.push_back(some_bytes(50, i));
    state.pages.push_back({append(page_block(written.pages.back())), hash128(written.pages[i])});
    written.copies.push_back(some_bytes(70 + i, 10 + i));
    written.states.push_back(state);
    written.offsets.push_back(append(state_block(state, written.copies.back())));
    state.key.push_back(9);
    state.progress = {.length = 4, .written = 4, .upper_length = 2, .window_start = 1};
    state.kind = {.exact = false, .drafts = false};
  }
  return written;
}

TEST(PrefixSegment, GivesBackWhatWasWritten) {
  const Written written = two_states();
  const SegmentBytes bytes = in_memory(written.file);
  EXPECT_EQ(*read_fingerprint(bytes), "model; settings");
  std::vector<StoredState> found;
  std::vector<int64_t> offsets;
  const SegmentScan scan = scan_segment(bytes, [&](int64_t offset, StoredState state) {
    offsets.push_back(offset);
    found.push_back(std::move(state));
  });
  EXPECT_EQ(scan.problem, "");
  EXPECT_EQ(scan.end, std::ssize(written.file));
  EXPECT_EQ(found, written.states);
  EXPECT_EQ(offsets, written.offsets);
  for (size_t i = 0; i < 2; ++i) {
    const auto loaded = read_state(bytes, offsets[i]);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->state, written.states[i]);
    EXPECT_EQ(loaded->copied, written.copies[i]);
    Bytes page(50);
    ASSERT_TRUE(read_page(bytes, loaded->state.pages[i], page));
    EXPECT_EQ(page, written.pages[i]);
  }
}

// Whatever the damage, what is read is what was written, or nothing.
void expect_nothing_wrong(const Written& written, const Bytes& file) {
  const SegmentBytes bytes = in_memory(file);
  test::check_segment(bytes);
  size_t next = 0;
  scan_segment(bytes, [&](int64_t offset, const StoredState& state) {
    ASSERT_LT(next, written.states.size());
    EXPECT_EQ(offset, written.offsets[next]);
    EXPECT_EQ(state, written.states[next]);
    const auto loaded = read_state(bytes, offset);
    if (loaded) {
      EXPECT_EQ(loaded->copied, written.copies[next]);
    }
    for (size_t i = 0; i < state.pages.size(); ++i) {
      Bytes page(50);
      if (read_page(bytes, state.pages[i], page)) {
        EXPECT_EQ(page, written.pages[i]);
      }
    }
    ++next;
  });
}

TEST(PrefixSegment, ReadsNothingWrongFromATruncatedFile) {
  const Written written = two_states();
  for (size_t size = 0; size <= written.file.size(); ++size) {
    expect_nothing_wrong(
        written, {written.file.begin(), written.file.begin() + static_cast<ptrdiff_t>(size)});
  }
}

TEST(PrefixSegment, ReadsNothingWrongAfterAnyChangedByte) {
  const Written written = two_states();
  std::mt19937 random(5);
  for (size_t at = 0; at < written.file.size(); ++at) {
    for (const int change : {1, 0x80, 0xff, static_cast<int>(1 + random() % 255)}) {
      Bytes file = written.file;
      file[at] ^= static_cast<std::byte>(change);
      expect_nothing_wrong(written, file);
    }
  }
}

TEST(PrefixSegment, ReadsNothingWrongFromPiecesPutTogether) {
  const Written written = two_states();
  std::mt19937 random(6);
  for (int round = 0; round < 3000; ++round) {
    Bytes file = written.file;
    const size_t first = random() % file.size(), count = random() % (file.size() - first);
    const size_t to = random() % file.size();
    const Bytes piece(file.begin() + static_cast<ptrdiff_t>(first),
                      file.begin() + static_cast<ptrdiff_t>(first + count));
    if (round % 2 == 0) {
      std::copy_n(piece.begin(), std::min(piece.size(), file.size() - to),
                  file.begin() + static_cast<ptrdiff_t>(to));
    } else {
      file.insert(file.begin() + static_cast<ptrdiff_t>(to), piece.begin(), piece.end());
    }
    test::check_segment(in_memory(file));
  }
}

// A page that was moved is found nowhere, one of other bytes is refused.
TEST(PrefixSegment, RefusesAPageThatIsNotTheOneReferredTo) {
  const Written written = two_states();
  const SegmentBytes bytes = in_memory(written.file);
  const auto& pages = written.states[1].pages;
  Bytes page(50), longer(51);
  EXPECT_FALSE(read_page(bytes, {pages[0].offset, pages[1].hash}, page));
  EXPECT_FALSE(read_page(bytes, {written.offsets[0], pages[0].hash}, page));
  EXPECT_FALSE(read_page(bytes, pages[0], longer));
  for (const int64_t offset : {int64_t{-5}, bytes.size - 1, INT64_MIN, INT64_MAX}) {
    EXPECT_FALSE(read_page(bytes, {offset, pages[0].hash}, page));
  }
  EXPECT_FALSE(read_state(bytes, pages[0].offset));
}

}  // namespace
}  // namespace cachalot
