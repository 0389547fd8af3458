#include "checkpoint/huge_pages.h"

#include <gtest/gtest.h>

#include "base/hash.h"

namespace cachalot {
namespace {

std::vector<uint64_t> hashes(const Checkpoint& checkpoint) {
  std::vector<uint64_t> result;
  for (const TensorEntry& tensor : checkpoint.tensors()) result.push_back(hash64(tensor.bytes));
  return result;
}

TEST(HugePages, KeepEveryTensor) {
  const auto checkpoint =
      Checkpoint::open(std::filesystem::path(CACHALOT_SOURCE_DIR) / "models/nano");
  ASSERT_TRUE(checkpoint);
  const std::vector<uint64_t> before = hashes(*checkpoint);
  int64_t last = 0, most = 0;
  const Status status = use_huge_pages(*checkpoint, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    most = total;
  });
  EXPECT_EQ(hashes(*checkpoint), before);
  if (status) {
    EXPECT_GT(last, 0);
    EXPECT_LE(last, most);
    EXPECT_LT(most, checkpoint->total_bytes());  // engram tables stay in their files
  } else {
    EXPECT_NE(status.error().message.find("huge pages"), std::string::npos);
  }
}

}  // namespace
}  // namespace cachalot
