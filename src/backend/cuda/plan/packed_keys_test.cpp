#include "backend/cuda/plan/packed_keys.h"

#include <gtest/gtest.h>

#include <vector>

namespace cachalot::cuda {
namespace {

using P = PackedKeys;

// How many times each byte is somebody's.
class Bytes {
 public:
  void add(int from, int count) {
    ASSERT_GE(from, 0);
    ASSERT_LE(from + count, P::kBytes);
    for (int i = from; i < from + count; ++i) ++times_[static_cast<size_t>(i)];
  }
  void expect_once_from(int first) const {
    for (size_t i = 0; i < times_.size(); ++i) {
      ASSERT_LE(times_[i], 1) << i;
      if (static_cast<int>(i) >= first) {
        ASSERT_EQ(times_[i], 1) << i;
      }
    }
  }

 private:
  std::vector<int> times_ = std::vector<int>(P::kBytes);
};

TEST(PackedKeys, EveryByteIsOneThing) {
  Bytes bytes;
  bytes.add(P::kCountsAt, P::kChunks * 4);
  for (int group = 0; group < P::kWindowGroups; ++group) {
    bytes.add(P::window_scales(group), P::kScalesOfGroup);
    for (int part = 0; part < P::kWindowParts; ++part) {
      bytes.add(P::window_codes(part, group), P::kCodesOfGroup);
    }
  }
  for (int group = 0; group < P::kLatentGroups; ++group) {
    for (int part = 0; part < P::kLatentParts; ++part) {
      bytes.add(P::latent_codes(part, group), P::kCodesOfGroup);
      bytes.add(P::latent_scales(part, group), P::kScalesOfGroup);
    }
  }
  for (int slice = 0; slice < P::kSlices; ++slice) {
    for (int stage = 0; stage < P::kStages; ++stage) {
      bytes.add(P::values(slice, stage), P::kStageBytes);
    }
  }
  for (int head = 0; head < 64; ++head) {
    for (int channel = 0; channel < 512; ++channel) bytes.add(P::query(head, channel), 2);
  }
  bytes.expect_once_from(P::kWindowCodesAt);
}

}  // namespace
}  // namespace cachalot::cuda
