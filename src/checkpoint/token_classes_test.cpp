#include "checkpoint/token_classes.h"

#include <gtest/gtest.h>

#include <fstream>

namespace cachalot {
namespace {

std::filesystem::path scratch(const char* name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

TEST(TokenClasses, ComeBackAsTheyWereWritten) {
  const std::vector<int32_t> classes{3, 0, 1'000'000, 7};
  ASSERT_TRUE(write_token_classes(scratch("classes"), classes));
  const auto read = read_token_classes(scratch("classes"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, classes);
}

TEST(TokenClasses, AreRefusedWhereAFileHoldsSomethingElse) {
  std::ofstream(scratch("odd")) << "seven b";
  std::ofstream(scratch("negative"), std::ios::binary).write("\xff\xff\xff\xff", 4);
  for (const auto& [name, text] : {std::pair{"odd", "found 7 bytes"},
                                   {"negative", "token 0 has class -1"},
                                   {"not there", "cannot be read"}}) {
    const auto read = read_token_classes(scratch(name));
    ASSERT_FALSE(read) << name;
    EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace cachalot
