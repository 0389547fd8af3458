#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>

namespace cachalot {
namespace {

// Of the empty input, as the algorithm's description states them.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(hash128({}), (Hash128{0x6001c324468d497fu, 0x99aa06d3014798d8u}));
}

TEST(Hash, SeesEveryBit) {
  std::array<std::byte, 300> bytes{};
  const uint64_t hash = hash64(bytes);
  const Hash128 wide = hash128(bytes);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_NE(hash64(bytes), hash);
    EXPECT_NE(hash128(bytes), wide);
    byte ^= std::byte{1};
  }
}

}  // namespace
}  // namespace cachalot
