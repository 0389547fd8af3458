// moe_experts of hybrid::Queue, with experts in both memories: against the reference, in company
// and alone, in a graph and without one.
#include "backend/hybrid/queue.h"
#include "ops/field_error.h"
#include "ops/on_gpu.h"
#include "ops/placed_experts.h"
#include "ops/reference/queue.h"

namespace cachalot {
namespace {

struct Case {
  const char* name;
  int64_t dim, width;
  std::vector<bool> stay;  // experts of the host
};

std::vector<bool> every(int64_t step, int64_t from = 0) {
  std::vector<bool> out(10);
  for (size_t e = 0; e < out.size(); ++e) {
    out[e] = static_cast<int64_t>(e) % step == from;
  }
  return out;
}

class HybridExperts : public testing::TestWithParam<Case> {
 protected:
  // What the queue makes of `args` whose experts lie as the case says.
  void run(const MoeExpertsArgs& args, bool graph = false) {
    std::fill_n(args.y.data, args.y.elements(), bf16{0x7FC0});
    const mirrored::OnDevice mirror(args, {.experts = GetParam().stay});
    cuda::arrange_experts(gpu_queue(), mirror.args().experts, mirror.args().shared);
    hybrid::Queue queue(Arena(0, cuda::device_memory()), team_, best_isa());
    moe_experts(queue, mirror.args());
    if (graph) {
      queue.gpu().begin_capture();
      // One behind the other: they share the memory through which tensors go.
      for (int i = 0; i < 3; ++i) moe_experts(queue, mirror.args());
      const auto captured = queue.gpu().end_capture();
      for (int i = 0; i < 20; ++i) queue.gpu().launch(*captured);
    }
    queue.gpu().wait();
    mirror.copy_back();
  }
  MoeExpertsArgs random_args(int64_t tokens) {
    return random_experts(random_, GetParam().dim, GetParam().width, tokens, 10, 3);
  }

  RandomTensors random_{3};
  ThreadTeam team_{3};
};
INSTANTIATE_TEST_SUITE_P(Experts, HybridExperts,
                         testing::Values(Case{"HalfOfTheHost", 512, 256, every(2)},
                                         Case{"FewOfTheHost", 512, 256, every(10, 4)},
                                         Case{"AllOfTheHost", 512, 256, every(1)},
                                         Case{"NoneOfTheHost", 512, 256, every(10, 10)},
                                         Case{"HalfOfTheHostPlain", 96, 64, every(2, 1)},
                                         Case{"AllOfTheHostPlain", 96, 64, every(1)}),
                         [](const auto& info) { return info.param.name; });

TEST_P(HybridExperts, AgreeWithTheReference) {
  for (const int64_t tokens : {1, 3, 12, 150}) {
    const MoeExpertsArgs args = random_args(tokens);
    run(args);
    MoeExpertsArgs expected = args;
    expected.y = random_.tensor<bf16>(args.y.shape);
    reference::Queue reference{Arena(0)};
    moe_experts(reference, expected);
    FieldComparison comparison("moe_experts");
    const FieldError error =
        comparison.compare(View<const bf16>(args.y), expected.y.data, expected.y.data);
    EXPECT_FALSE(error.departs()) << tokens << " tokens: " << error.error << " exceeds "
                                  << error.limit;
  }
}

TEST_P(HybridExperts, ATokenIsTheSameAloneAndInCompany) {
  constexpr int64_t kTokens = 150;
  const MoeExpertsArgs all = random_args(kTokens);
  run(all);
  int64_t first = 0;
  for (const int64_t count : {1, 2, 5, 17, 50}) {
    const MoeExpertsArgs part = tokens_of(random_, all, first, count);
    run(part);
    EXPECT_EQ(std::memcmp(part.y.data, all.y.row(first), static_cast<size_t>(part.y.bytes())), 0)
        << count << " tokens from " << first;
    first += count;
  }
}

TEST_P(HybridExperts, AGraphGivesTheSameBits) {
  for (const int64_t tokens : {1, 20}) {
    const MoeExpertsArgs args = random_args(tokens);
    run(args);
    const std::vector<std::byte> expected = written_bytes(args);
    run(args, true);
    EXPECT_TRUE(written_bytes(args) == expected) << tokens << " tokens";
  }
}

}  // namespace
}  // namespace cachalot
