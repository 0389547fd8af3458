#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace cachalot {
namespace {

// A file that lives as long as the test.
class TestFile {
 public:
  explicit TestFile(const std::string& content)
      : path_(testing::TempDir() + "cachalot_mapped_file_test") {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TestFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ReadTextFile, ReadsTheWholeFile) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 14, (size_t{1} << 14) + 5}) {
    std::string content(size, 'x');
    if (size > 1) content.back() = '\0';
    const TestFile file(content);
    const auto text = read_text_file(file.path());
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, content);
  }
}

TEST(ReadTextFile, NamesWhatCannotBeRead) {
  for (const std::string& path : {testing::TempDir(), std::string("/no/such/file")}) {
    const auto text = read_text_file(path);
    ASSERT_FALSE(text);
    EXPECT_NE(text.error().message.find(path), std::string::npos) << text.error().message;
  }
}

TEST(ReadTextFile, RefusesADeviceWithoutEnd) {
  const auto text = read_text_file("/dev/zero");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "/dev/zero: expected a regular file or a pipe, found a device");
}

TEST(ReadTextFile, RefusesMoreThanTheLimit) {
  const TestFile file("12345");
  EXPECT_TRUE(read_text_file(file.path(), 5));
  const auto text = read_text_file(file.path(), 4);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("expected at most 4 bytes"), std::string::npos);
}

TEST(ReadTextFile, ReadsAPipe) {
  const std::string path = testing::TempDir() + "read_text_file_pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << std::string(100'000, 'x'); });
  const auto text = read_text_file(path);
  writer.join();
  std::filesystem::remove(path);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, std::string(100'000, 'x'));
}

TEST(FileExists, TellsApartWhatIsNotThereAndWhatNobodyCanTell) {
  const TestFile file("");
  EXPECT_TRUE(file_exists(file.path()).value());
  EXPECT_FALSE(file_exists("/no/such/file").value());
  EXPECT_FALSE(file_exists(std::string(5000, 'a')));
}

TEST(MappedFile, RefusesAFolder) { EXPECT_FALSE(MappedFile::open(testing::TempDir())); }

}  // namespace
}  // namespace cachalot
