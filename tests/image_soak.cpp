// Ten thousand damaged picture files, decoded by code that sanitizers watch: no crash, no leak, no
// byte read beyond a buffer, and memory stays bounded.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "vision/image_mutations.h"

namespace cachalot {
namespace {

constexpr uint64_t kFiles = 10000;
constexpr int64_t kLargestKilobytes =
    1'500'000;  // the limit of 2^26 pixels, 8 bytes each, and more

TEST(ImageSoak, TenThousandDamagedFilesAreSurvived) {
  const auto files = image_files();
  uint64_t decoded = 0;
  for (uint64_t i = 0; i < kFiles; ++i) decoded += decode_mutated(files, 1000 + i) ? 1 : 0;
  EXPECT_GT(decoded, kFiles / 10);  // the damage does not all stop at the headers
  EXPECT_LT(decoded, kFiles);
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, kLargestKilobytes);
}

}  // namespace
}  // namespace cachalot
