// moe_experts with some experts' outputs from elsewhere, or their matrices in pinned memory,
// against the same with everything on the device: equal to the bit.
#include "backend/cuda/experts_elsewhere.h"

#include "on_gpu.h"
#include "placed_experts.h"

namespace cachalot {
namespace {

struct Sizes {
  const char* name;
  int64_t dim, width;
};
// Matrices that are arranged, and such that are not.
constexpr Sizes kSizes[] = {{"Arranged", 512, 256}, {"Plain", 96, 64}};

class ExpertsElsewhere : public testing::TestWithParam<Sizes> {
 protected:
  static constexpr int64_t kExperts = 12, kChoices = 3;

  // Nothing, everything, one and some.
  static std::vector<std::vector<bool>> parts() {
    std::vector<bool> one(kExperts), some(kExperts);
    one[5] = true;
    for (size_t e = 0; e < some.size(); ++e) some[e] = e % 3 != 1;
    return {std::vector<bool>(kExperts), std::vector<bool>(kExperts, true), one, some};
  }
};
INSTANTIATE_TEST_SUITE_P(Matrices, ExpertsElsewhere, testing::ValuesIn(kSizes),
                         [](const auto& info) { return info.param.name; });

void run_here(const MoeExpertsArgs& args) {
  mirrored::Queue mirror(gpu_queue());
  moe_experts(mirror, args);
}

TEST_P(ExpertsElsewhere, TheirOutputsAreAddedAtTheirPlaces) {
  RandomTensors random(1);
  // For each kernel that sorts rows, and tiles of both widths.
  for (const int64_t tokens : {1, 4, 10, 11, 40, 700}) {
    const MoeExpertsArgs args =
        random_experts(random, GetParam().dim, GetParam().width, tokens, kExperts, kChoices);
    run_here(args);
    const std::vector<std::byte> expected = written_bytes(args);
    const MoeExpertsArgs pairs = pairs_of(random, args);
    run_here(pairs);
    for (const std::vector<bool>& elsewhere : parts()) {
      const auto bytes = static_cast<size_t>(pairs.y.bytes());
      const std::unique_ptr<void, ReleaseTo> outputs(cuda::pinned_memory().allocate(bytes),
                                                     {&cuda::pinned_memory()});
      auto* rows = static_cast<bf16*>(outputs.get());
      bool awaited = false;
      const auto arrive = [&] {
        gpu_queue().wait();
        awaited = true;
        for (int64_t i = 0; i < pairs.y.elements(); ++i) {
          const auto expert = static_cast<size_t>(args.ids.data[i / args.x.extent(1)]);
          rows[i] = elsewhere[expert] ? pairs.y.data[i] : bf16{0x7FC0};
        }
      };
      std::fill_n(args.y.data, args.y.elements(), bf16{});
      const mirrored::OnDevice mirror(args, {.experts = elsewhere});
      cuda::arrange_experts(gpu_queue(), mirror.args().experts, mirror.args().shared);
      cuda::moe_experts(gpu_queue(), mirror.args(),
                        {.experts = elsewhere, .outputs = rows, .await = arrive});
      gpu_queue().wait();
      mirror.copy_back();
      EXPECT_TRUE(awaited);
      EXPECT_TRUE(written_bytes(args) == expected)
          << tokens << " tokens, " << std::ranges::count(elsewhere, true) << " experts elsewhere";
    }
  }
}

TEST_P(ExpertsElsewhere, MatricesInPinnedMemoryGiveTheSameBits) {
  RandomTensors random(2);
  for (const int64_t tokens : {1, 10, 40, 700}) {
    const MoeExpertsArgs args =
        random_experts(random, GetParam().dim, GetParam().width, tokens, kExperts, kChoices);
    run_here(args);
    const std::vector<std::byte> expected = written_bytes(args);
    for (const std::vector<bool>& pinned : parts()) {
      std::fill_n(args.y.data, args.y.elements(), bf16{});
      const mirrored::OnDevice mirror(args, {.experts = pinned, .memory = &cuda::pinned_memory()});
      for (size_t e = 0; e < pinned.size(); ++e) {
        const void* codes = mirror.args().experts[e].w1.codes.data;
        EXPECT_TRUE(cuda::in_reach(codes));
        EXPECT_EQ(cuda::on_device(codes), !pinned[e]);
      }
      cuda::arrange_experts(gpu_queue(), mirror.args().experts, mirror.args().shared);
      cuda::moe_experts(gpu_queue(), mirror.args());
      gpu_queue().wait();
      mirror.copy_back();
      EXPECT_TRUE(written_bytes(args) == expected)
          << tokens << " tokens, " << std::ranges::count(pinned, true) << " experts pinned";
    }
  }
}

TEST(GpuMemory, SaysWhatTheDeviceReaches) {
  const int on_stack = 0;
  EXPECT_FALSE(cuda::in_reach(&on_stack));
  EXPECT_FALSE(cuda::in_reach(nullptr));
  EXPECT_TRUE(cuda::in_reach(gpu_queue().counters()));
}

}  // namespace
}  // namespace cachalot
