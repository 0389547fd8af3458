#include "backend/meta/queue.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

TEST(MetaQueue, RecordsShapesAndCostWithoutTouchingData) {
  meta::Queue queue;
  queue.label("layers.0.attn");
  LinearArgs args;
  args.x = queue.arena().allocate<bf16>({5, 64});
  args.weight = {
      .rows = 96, .columns = 64, .codes = {nullptr, {96, 64}}, .scales = {nullptr, {3, 2}}};
  args.y = queue.arena().allocate<bf16>({5, 96});
  linear(queue, args);

  ASSERT_EQ(queue.records().size(), 1u);
  const meta::Record& record = queue.records()[0];
  EXPECT_EQ(record.name, "linear");
  EXPECT_EQ(record.label, "layers.0.attn");
  EXPECT_EQ(record.shapes, "x [5, 64], weight.codes [96, 64], weight.scales [3, 2], y [5, 96]");
  // x and the packed weight are read, with one byte per scale; y is written.
  EXPECT_EQ(record.cost.bytes_read, 5 * 64 * 2 + 96 * 64 + 6);
  EXPECT_EQ(record.cost.bytes_written, 5 * 96 * 2);
  EXPECT_EQ(record.cost.flops, 2 * 5 * 64 * 96);
  EXPECT_EQ(queue.total(), record.cost);
}

TEST(MetaQueue, MeasuresThePeakWorkspace) {
  meta::Queue queue;
  queue.arena().allocate<float>({16});
  {
    ArenaScope scope(queue.arena());
    queue.arena().allocate<float>({64});
  }
  queue.arena().allocate<float>({32});
  EXPECT_EQ(queue.arena().peak(), size_t{(16 + 64) * 4});
}

TEST(MetaQueue, ShowsOperationsOnMemoryThatTheyKeep) {
  struct Watcher final : OperationWatcher {
    void before(const HyperExpandArgs& args) override { streams.push_back(args.stream.data); }
    std::vector<bf16*> streams;
  } watcher;
  const auto run = [](meta::Queue& queue) {
    for (int i = 0; i < 2; ++i) {
      ArenaScope scope(queue.arena());
      HyperExpandArgs args;
      args.y = queue.arena().allocate<bf16>({2, 64});
      args.post = queue.arena().allocate<float>({2, 4});
      args.comb = queue.arena().allocate<float>({2, 4, 4});
      args.stream = queue.arena().allocate<bf16>({2, 4, 64});
      hyper_expand(queue, args);
    }
  };
  meta::Queue plan;
  plan.keep_tensors();
  run(plan);
  meta::Queue queue(Arena(plan.arena().peak()), watcher);
  queue.keep_tensors();
  run(queue);
  ASSERT_EQ(watcher.streams.size(), 2u);
  EXPECT_NE(watcher.streams[0], watcher.streams[1]);
  watcher.streams[0][0] = watcher.streams[1][0] = bf16{};  // both are there
}

TEST(MetaQueue, ReadsAtMostAsManyExpertsAsThereAreChoices) {
  const Fp4Matrix w1{
      .rows = 32, .columns = 64, .codes = {nullptr, {32, 32}}, .scales = {nullptr, {32, 2}}};
  const Fp4Matrix w2{
      .rows = 64, .columns = 32, .codes = {nullptr, {64, 16}}, .scales = {nullptr, {64, 1}}};
  const DenseMatrix s1{
      .rows = 32, .columns = 64, .codes = {nullptr, {32, 64}}, .scales = {nullptr, {1, 2}}};
  const DenseMatrix s2{
      .rows = 64, .columns = 32, .codes = {nullptr, {64, 32}}, .scales = {nullptr, {2, 1}}};
  const std::vector<ExpertMatrices> experts(8, {w1, w2, w1});
  const auto cost = [&](int64_t tokens) {
    MoeExpertsArgs args;
    args.x = View<const bf16>(nullptr, {tokens, 64});
    args.ids = View<const int32_t>(nullptr, {tokens, 2});
    args.weights = View<const float>(nullptr, {tokens, 2});
    args.experts = experts;
    args.shared = {s1, s2, s1};
    args.y = View<bf16>(nullptr, {tokens, 64});
    meta::Queue queue;
    moe_experts(queue, args);
    return queue.total();
  };
  const int64_t expert = 3 * (32 * 32 + 64), shared = 3 * (32 * 64 + 2);
  const int64_t per_token = 64 * 2 + 2 * 4 + 2 * 4;
  EXPECT_EQ(cost(1).bytes_read, 2 * expert + shared + per_token);
  EXPECT_EQ(cost(3).bytes_read, 6 * expert + shared + 3 * per_token);
  EXPECT_EQ(cost(100).bytes_read, 8 * expert + shared + 100 * per_token);
}

}  // namespace
}  // namespace cachalot
