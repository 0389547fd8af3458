#include "base/memory_placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace cachalot {
namespace {

TEST(MemoryPlacement, KnowsAtLeastOneNode) { EXPECT_GE(memory_nodes(), 1); }

TEST(MemoryPlacement, InterleavesWhereThereIsSomethingToInterleave) {
  const Status status = interleave_memory();
  // One node: nothing to do. More: a container may forbid it, and then says so.
  if (memory_nodes() == 1) {
    EXPECT_TRUE(status);
  } else if (!status) {
    EXPECT_NE(status.error().message.find("nodes"), std::string::npos);
  }
}

TEST(MemoryPlacement, LeavesContentsAlone) {
  std::vector<char> memory(8 << 20, 'x');
  prefer_huge_pages(memory.data(), memory.size());
  prefer_huge_pages(memory.data(), 100);
  for (char c : memory) ASSERT_EQ(c, 'x');
}

// Where the part starts and ends in the midst of a page, as parts of files do.
TEST(MemoryPlacement, MovesAFileToHugePagesWhereItLies) {
  const size_t bytes = (7 << 20) + 123;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  std::vector<uint8_t> contents(bytes);
  for (size_t i = 0; i < bytes; ++i) contents[i] = static_cast<uint8_t>(i * 7 + i / 4096);
  ASSERT_EQ(std::fwrite(contents.data(), 1, bytes, file), bytes);
  std::fflush(file);
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  int64_t done = 0;
  const auto part = std::span(static_cast<const std::byte*>(mapping), bytes).subspan(77);
  const Status status = move_to_huge_pages(part, [&](int64_t now) { done = now; });
  EXPECT_EQ(std::memcmp(mapping, contents.data(), bytes), 0);
  if (status) {
    EXPECT_GE(done, 4 << 20);
    EXPECT_EQ(done % (2 << 20), 0);
  } else {
    EXPECT_NE(status.error().message.find("huge pages"), std::string::npos);
  }
  munmap(mapping, bytes);
  std::fclose(file);
}

TEST(MemoryPlacement, LocksAndReportsProgress) {
  const size_t bytes = 64 << 10;
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  int64_t done = 0;
  const Status status =
      lock_memory({static_cast<const std::byte*>(memory), bytes}, [&](int64_t now) { done = now; });
  if (status) {
    EXPECT_EQ(done, static_cast<int64_t>(bytes));
  } else {
    EXPECT_NE(status.error().message.find("lock"), std::string::npos);
  }
  munmap(memory, bytes);
}

// A root process is not held by the limit.
TEST(MemoryPlacement, SaysHowToRaiseTheLimitOfLockedMemory) {
  if (geteuid() == 0) {
    const Status status = lock_memory({reinterpret_cast<const std::byte*>(4096), 4096});
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("cannot lock 4096 of 4096 bytes"), std::string::npos);
    return;
  }
  const rlimit none{0, 0};
  rlimit before{};
  getrlimit(RLIMIT_MEMLOCK, &before);
  setrlimit(RLIMIT_MEMLOCK, &none);
  std::vector<std::byte> memory(1 << 20);
  const Status status = lock_memory(memory);
  setrlimit(RLIMIT_MEMLOCK, &before);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("ulimit -l"), std::string::npos);
}

}  // namespace
}  // namespace cachalot
