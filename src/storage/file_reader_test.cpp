#include "storage/file_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "storage/test_file.h"

namespace cachalot {
namespace {

// Every kind this machine has, past and through the page cache.
struct Way {
  ReaderKind kind;
  bool direct;
};

class FileReaderTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().kind == ReaderKind::io_uring && !make_uring_reader({}, 1)) GTEST_SKIP();
  }
  std::vector<DirectFile> open(const TestFile& file) const {
    std::vector<DirectFile> files;
    files.push_back(*DirectFile::open(file.path(), std::ssize(file.content()), GetParam().direct));
    return files;
  }
};

TEST_P(FileReaderTest, ReadsAnyBytesIntoAnyMemory) {
  const TestFile file(3'000'017);
  const auto files = open(file);
  const auto reader = *make_file_reader(GetParam().kind, files, 8);
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> targets;
  std::vector<FileRead> reads;
  ReadLog log;
  for (uint64_t i = 0; i < 500; ++i) {
    const auto bytes = static_cast<int64_t>(1 + random() % kDirectAlignment);
    const int64_t last = std::ssize(file.content()) - bytes;
    const int64_t offset = i == 0 ? last : static_cast<int64_t>(random()) % last;
    targets.emplace_back(static_cast<size_t>(bytes));
    reads.push_back({.offset = offset,
                     .bytes = bytes,
                     .target = targets.back().data(),
                     .listener = &log,
                     .tag = i});
  }
  reader->start(std::span(reads).first(499));
  reader->start(std::span(reads).last(1));
  log.wait_for(500);
  for (const FileRead& read : reads) {
    EXPECT_EQ(log.errors.at(read.tag), "");
    EXPECT_EQ(std::memcmp(read.target, file.content().data() + read.offset,
                          static_cast<size_t>(read.bytes)),
              0);
  }
}

TEST_P(FileReaderTest, ReadsLargePiecesInPlace) {
  const TestFile file(5'000'001);
  const auto files = open(file);
  const auto reader = *make_file_reader(GetParam().kind, files, 2);
  const size_t room = 6'000'000 / kDirectAlignment * kDirectAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, room));
  ReadLog log;
  const FileRead read{.offset = 5000,
                      .bytes = 5'000'001 - 5000,
                      .target = memory + 5000 % kDirectAlignment,
                      .padded = true,
                      .listener = &log};
  reader->start({&read, 1});
  log.wait_for(1);
  EXPECT_EQ(log.errors.at(0), "");
  EXPECT_EQ(std::memcmp(read.target, file.content().data() + 5000, 5'000'001 - 5000), 0);
  std::free(memory);
}

TEST_P(FileReaderTest, SaysWhereAFileWasCutShort) {
  const TestFile file(1 << 20);
  const auto files = open(file);
  const auto reader = *make_file_reader(GetParam().kind, files, 4);
  for (const int64_t length : {0, 4096, 500'000, 500'224}) {
    ASSERT_EQ(::truncate(file.path().c_str(), length), 0);
    std::vector<std::byte> target(256);
    ReadLog log;
    const FileRead read{.offset = 500'100, .bytes = 256, .target = target.data(), .listener = &log};
    reader->start({&read, 1});
    log.wait_for(1);
    EXPECT_NE(log.errors.at(0).find(file.path().string()), std::string::npos);
    EXPECT_NE(log.errors.at(0).find("256 bytes at offset 500100"), std::string::npos);
    EXPECT_NE(log.errors.at(0).find("cut short"), std::string::npos) << log.errors.at(0);
  }
}

TEST_P(FileReaderTest, NamesFileAndOffsetOfWhatTheSystemRefuses) {
  // A folder opens and cannot be read.
  std::vector<DirectFile> files;
  files.push_back(DirectFile::adopt(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "SHARD"));
  const auto reader = *make_file_reader(GetParam().kind, files, 4);
  std::byte target[8];
  ReadLog log;
  const FileRead read{.offset = 77, .bytes = 8, .target = target, .listener = &log};
  reader->start({&read, 1});
  log.wait_for(1);
  EXPECT_EQ(log.errors.at(0).find("SHARD: cannot read 8 bytes at offset 77"), 0u)
      << log.errors.at(0);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FileReaderTest,
    testing::Values(Way{ReaderKind::threads, true}, Way{ReaderKind::threads, false},
                    Way{ReaderKind::io_uring, true}, Way{ReaderKind::io_uring, false}),
    [](const auto& info) {
      return std::string(info.param.kind == ReaderKind::threads ? "Threads" : "Uring") +
             (info.param.direct ? "Direct" : "Cached");
    });

TEST(DirectFile, NoticesAFileThatChanged) {
  const TestFile file(1000);
  EXPECT_TRUE(DirectFile::open(file.path(), 1000, true));
  const auto shorter = DirectFile::open(file.path(), 1001, true);
  ASSERT_FALSE(shorter);
  EXPECT_NE(shorter.error().message.find("expected 1001 bytes"), std::string::npos);
  EXPECT_FALSE(DirectFile::open(file.path().string() + "x", 1000, true));
}

}  // namespace
}  // namespace cachalot
