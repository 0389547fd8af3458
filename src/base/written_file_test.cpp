#include "base/written_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/mapped_file.h"

namespace cachalot {
namespace {

namespace fs = std::filesystem;

class WrittenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cachalot-written-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  int64_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(WrittenFile, ReplacesAFileAndKeepsItsPermissions) {
  const fs::path path = folder_ / "a";
  ASSERT_TRUE(write_text_file(path, "one"));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(write_text_file(path, "two"));
  EXPECT_EQ(*read_text_file(path), "two");
  struct stat now {};
  ASSERT_EQ(::stat(path.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 0777, 0640u);
  EXPECT_EQ(files(), 1);
}

TEST_F(WrittenFile, WritesToWhatALinkNames) {
  ASSERT_TRUE(write_text_file(folder_ / "target", "old"));
  fs::create_symlink("target", folder_ / "link");
  ASSERT_TRUE(write_text_file(folder_ / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(*read_text_file(folder_ / "target"), "new");
}

TEST_F(WrittenFile, LeavesADeviceADevice) {
  // A link of its own, so that a mistake here costs a link and not the device.
  fs::create_symlink("/dev/full", folder_ / "full");
  const Status status = write_text_file(folder_ / "full", "text");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(WrittenFile, LeavesNothingBehindWhereItFails) {
  fs::create_directory(folder_ / "folder");
  for (const fs::path& path : {folder_ / "folder", folder_ / "missing" / "file"}) {
    EXPECT_FALSE(check_writable(path));
    const Status status = write_text_file(path, "text");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message.find(path.string() + ": cannot write"), 0u);
  }
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace cachalot
