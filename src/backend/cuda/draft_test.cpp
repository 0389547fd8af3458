// The end of the draft head on the released widths, ties, and many sequences.
#include <algorithm>

#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kBlock = 5;

MarkovStepArgs markov_args(RandomTensors& random, int64_t sequences, int64_t vocab, int64_t rank) {
  const auto last = static_cast<int32_t>(vocab - 1);
  return {.step = 1,
          .ids = random.integers({sequences * kBlock}, 0, last),
          .embed = random.bf16s({vocab, rank}),
          .head = random.bf16s({vocab, rank}),
          .chain = random.integers({sequences, kBlock + 1}, 0, last),
          .features = random.bf16s({sequences * kBlock, rank}),
          .logits = random.floats({sequences * kBlock, vocab}, 100),
          .drafts = random.integers({sequences, kBlock}, 0, last)};
}

TEST(MarkovStep, AgreesOnReleasedRank) {
  for (const int64_t sequences : {1, 8, 19}) {
    SCOPED_TRACE(fmt::format("{} sequences", sequences));
    RandomTensors random(1);
    const MarkovStepArgs args = markov_args(random, sequences, 20011, 256);
    CACHALOT_EXPECT_GPU_AGREES(markov_step, args);
  }
}

TEST(MarkovStep, GivesTiesToTheLowerId) {
  RandomTensors random(2);
  MarkovStepArgs args = markov_args(random, 3, 20011, 256);
  std::fill_n(const_cast<bf16*>(args.head.data), args.head.elements(), bf16{});
  std::fill_n(args.logits.data, args.logits.elements(), -1.0f);
  float* of_second = args.logits.row(kBlock + 1);
  of_second[19000] = of_second[333] = of_second[334] = 0.0f;
  of_second[200] = -0.0f;
  mirrored::Queue queue(gpu_queue());
  markov_step(queue, args);
  EXPECT_EQ(args.drafts.row(0)[1], 0);
  EXPECT_EQ(args.drafts.row(1)[1], 200);
  EXPECT_EQ(args.chain.row(1)[2], 200);
}

TEST(MarkovStep, SequencesDoNotSeeTheirCompany) {
  RandomTensors random(3);
  const MarkovStepArgs whole = markov_args(random, 11, 5003, 256);
  const std::vector<float> before(whole.logits.data, whole.logits.data + whole.logits.elements());
  mirrored::Queue queue(gpu_queue());
  markov_step(queue, whole);
  for (int64_t s = 0; s < 11; ++s) {
    MarkovStepArgs one = whole;
    one.ids = {whole.ids.data + s * kBlock, {kBlock}};
    one.chain = random.tensor<int32_t>({1, kBlock + 1});
    std::copy_n(whole.chain.row(s), kBlock + 1, one.chain.data);
    one.features = random.tensor<bf16>({kBlock, 256});
    one.logits = random.tensor<float>({kBlock, 5003});
    std::copy_n(&before[s * kBlock * 5003], kBlock * 5003, one.logits.data);
    one.drafts = random.tensor<int32_t>({1, kBlock});
    markov_step(queue, one);
    EXPECT_EQ(one.drafts.data[1], whole.drafts.row(s)[1]);
    EXPECT_TRUE(
        std::equal(one.logits.row(1), one.logits.row(1) + 5003, whole.logits.row(s * kBlock + 1)));
  }
}

TEST(DraftConfidence, AgreesOnReleasedWidths) {
  RandomTensors random(4);
  const DraftConfidenceArgs args{.x = random.bf16s({35, 5120}),
                                 .features = random.bf16s({35, 256}),
                                 .projection = random.bf16s({1, 5376}),
                                 .confidence = random.tensor<float>({35})};
  CACHALOT_EXPECT_GPU_AGREES(draft_confidence, args);
}

}  // namespace
}  // namespace cachalot
