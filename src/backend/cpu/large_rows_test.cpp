// Attention over several tiles of keys and selection among several blocks of entries, against
// double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backend/cpu/queue.h"
#include "base/cpu_info.h"
#include "tensor/block_quantizers.h"

namespace cachalot::cpu {
namespace {

// body(Queue&) for every supported instruction set, on 2 threads.
template <class Body>
void on_all_queues(Body body) {
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    SCOPED_TRACE(std::string(name_of(isa)));
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(1024));
    body(queue);
  }
}

std::vector<float> random_floats(std::mt19937& engine, int64_t n) {
  std::normal_distribution<float> draw;
  std::vector<float> out(n);
  for (float& value : out) value = round_to_bf16(draw(engine));
  return out;
}

std::vector<bf16> bf16s_of(const std::vector<float>& values) {
  std::vector<bf16> out;
  for (float value : values) out.push_back(to_bf16(value));
  return out;
}

void expect_attention_of_double(int64_t heads, int64_t chosen_count) {
  constexpr int64_t kHeadDim = 512, kWindow = 128, kRing = 133;
  constexpr int32_t kPosition = 300;
  const int64_t window_bytes = window_row_bytes(kHeadDim),
                latent_bytes = latent_row_bytes(kHeadDim);
  std::mt19937 engine(21);
  std::vector<uint8_t> own(window_bytes), ring(kRing * window_bytes),
      latents(kPosition * latent_bytes);
  std::vector<std::vector<float>> keys;
  for (int32_t p = kPosition - kWindow + 1; p <= kPosition; ++p) {
    uint8_t* row = p == kPosition ? own.data() : &ring[p % kRing * window_bytes];
    quantize_window_row(random_floats(engine, kHeadDim).data(), kHeadDim, row);
    dequantize_window_row(row, kHeadDim, keys.emplace_back(kHeadDim).data());
  }
  std::vector<int32_t> chosen(chosen_count + 3, -1);
  for (int32_t i = 0; i < chosen_count; ++i) {
    chosen[i] = 2 * i;
    uint8_t* row = &latents[chosen[i] * latent_bytes];
    quantize_latent_row(random_floats(engine, kHeadDim).data(), kHeadDim, row);
    dequantize_latent_row(row, kHeadDim, keys.emplace_back(kHeadDim).data());
  }
  const std::vector<float> q = random_floats(engine, heads * kHeadDim);
  const std::vector<bf16> packed_q = bf16s_of(q);
  const std::vector<float> sink = random_floats(engine, heads), frequencies = {0};
  const int32_t position = kPosition, slot = 0, page = 0, first_row = 0;
  const float scale = 1 / std::sqrt(512.0f);
  on_all_queues([&](Queue& queue) {
    std::vector<bf16> o(heads * kHeadDim);
    sparse_attention(queue,
                     {.rows = {{&position, {1}}, {&slot, {1}}, {&first_row, {1}}},
                      .q = {packed_q.data(), {1, heads, kHeadDim}},
                      .window_rows = {own.data(), {1, window_bytes}},
                      .ring = {ring.data(), {1, kRing, window_bytes}},
                      .window = kWindow,
                      .chosen = {chosen.data(), {1, chosen_count + 3}},
                      .latents = {{latents.data(), {1, kPosition, latent_bytes}}, {&page, {1, 1}}},
                      .sink = {sink.data(), {heads}},
                      .frequencies = {frequencies.data(), {1}},
                      .scale = scale,
                      .o = {o.data(), {1, heads, kHeadDim}}});
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> scores, sums(kHeadDim);
      for (const std::vector<float>& key : keys) {
        double dot = 0;
        for (int64_t i = 0; i < kHeadDim; ++i) dot += double{q[h * kHeadDim + i]} * key[i];
        scores.push_back(dot * scale);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double total = std::exp(sink[h] - top), size = 0;
      for (size_t k = 0; k < keys.size(); ++k) {
        const double e = std::exp(scores[k] - top);
        total += e;
        size += e;
        for (int64_t i = 0; i < kHeadDim; ++i) {
          sums[i] += double{round_to_bf16(static_cast<float>(e))} * keys[k][i];
        }
      }
      for (int64_t i = 0; i < kHeadDim; ++i) {
        const double expected = sums[i] / total;
        // One rounding to BF16, and scores in FP32 that may move an e across a rounding boundary.
        EXPECT_NEAR(to_float(o[h * kHeadDim + i]), expected,
                    std::fabs(expected) * 0x1p-8 + size / total * 1e-3);
      }
    }
  });
}

// Fewer heads than a tile of matrix registers, more than two; keys that leave tiles unfilled.
TEST(LargeRows, AttentionMatchesDouble) {
  expect_attention_of_double(5, 150);
  expect_attention_of_double(40, 35);
}

// Few rows are shared by all threads, many are a task each: the same bits.
TEST(LargeRows, AttentionIsTheSameInFewRowsAndInMany) {
  constexpr int64_t kHeads = 22, kHeadDim = 96, kWindow = 99, kRing = 128, kChosen = 70;
  constexpr int64_t kMany = 40;
  constexpr int32_t kPosition = 300;
  const int64_t window_bytes = window_row_bytes(kHeadDim),
                latent_bytes = latent_row_bytes(kHeadDim);
  std::mt19937 engine(29);
  std::vector<uint8_t> own(kMany * window_bytes), ring(kRing * window_bytes),
      latents(kPosition * latent_bytes);
  const auto fill_window = [&](uint8_t* row) {
    quantize_window_row(random_floats(engine, kHeadDim).data(), kHeadDim, row);
  };
  for (int64_t p = 0; p < kRing; ++p) fill_window(&ring[p * window_bytes]);
  for (int64_t t = 0; t < kMany; ++t) fill_window(&own[t * window_bytes]);
  for (int32_t i = 0; i < kPosition; ++i) {
    quantize_latent_row(random_floats(engine, kHeadDim).data(), kHeadDim,
                        &latents[i * latent_bytes]);
  }
  std::vector<int32_t> chosen(kMany * kChosen), positions(kMany, kPosition), slots(kMany, 0),
      first_rows(kMany);
  for (int64_t t = 0; t < kMany; ++t) {
    first_rows[t] = static_cast<int32_t>(t);
    for (int64_t i = 0; i < kChosen; ++i) chosen[t * kChosen + i] = static_cast<int32_t>(3 * i);
    if (t % 3 == 0) std::fill_n(&chosen[t * kChosen + 31], kChosen - 31, -1);
  }
  const int64_t row_size = kHeads * kHeadDim;
  const std::vector<bf16> q = bf16s_of(random_floats(engine, kMany * row_size));
  const std::vector<float> sink = random_floats(engine, kHeads), frequencies(13, 0.01f);
  const int32_t page = 0, own_row = 0;
  on_all_queues([&](Queue& queue) {
    const auto attend = [&](int64_t first, int64_t count, bf16* o) {
      const int32_t* rows = count == 1 ? &own_row : first_rows.data();
      sparse_attention(
          queue, {.rows = {{&positions[first], {count}}, {&slots[first], {count}}, {rows, {count}}},
                  .q = {&q[first * row_size], {count, kHeads, kHeadDim}},
                  .window_rows = {&own[first * window_bytes], {count, window_bytes}},
                  .ring = {ring.data(), {1, kRing, window_bytes}},
                  .window = kWindow,
                  .chosen = {&chosen[first * kChosen], {count, kChosen}},
                  .latents = {{latents.data(), {1, kPosition, latent_bytes}}, {&page, {1, 1}}},
                  .sink = {sink.data(), {kHeads}},
                  .frequencies = {frequencies.data(), {13}},
                  .scale = 0.1f,
                  .o = {o, {count, kHeads, kHeadDim}}});
    };
    std::vector<bf16> together(kMany * row_size), alone(row_size);
    attend(0, kMany, together.data());
    for (int64_t t = 0; t < kMany; ++t) {
      attend(t, 1, alone.data());
      for (int64_t i = 0; i < row_size; ++i) {
        ASSERT_EQ(alone[i].bits, together[t * row_size + i].bits) << t << " " << i;
      }
    }
  });
}

// 5000 visible entries of one row and their scores in double.
struct Entries {
  static constexpr int64_t kCount = 5000, kHeads = 4, kWidth = 64;

  Entries() : keys(kCount * index_key_row_bytes(kWidth)), scores(kCount) {
    std::mt19937 engine(23);
    const int64_t bytes = index_key_row_bytes(kWidth);
    const std::vector<float> values = random_floats(engine, kHeads * kWidth);
    const std::vector<float> weight_values = random_floats(engine, kHeads);
    q = bf16s_of(values);
    weights = bf16s_of(weight_values);
    std::vector<float> query(kHeads * kWidth), key(kWidth);
    std::vector<uint8_t> packed(bytes);
    for (int64_t h = 0; h < kHeads; ++h) {
      quantize_index_row(&values[h * kWidth], kWidth, packed.data());
      dequantize_index_row(packed.data(), kWidth, &query[h * kWidth]);
    }
    for (int64_t j = 0; j < kCount; ++j) {
      quantize_index_row(random_floats(engine, kWidth).data(), kWidth, &keys[j * bytes]);
      dequantize_index_row(&keys[j * bytes], kWidth, key.data());
      for (int64_t h = 0; h < kHeads; ++h) {
        double dot = 0;
        for (int64_t i = 0; i < kWidth; ++i) dot += double{query[h * kWidth + i]} * key[i];
        scores[j] += weight_values[h] * std::max(dot, 0.0);
      }
    }
  }

  // Of the newest entry's token, which builds candidates. The vectors outlive it.
  IndexSelectArgs arguments(int64_t block, std::vector<int32_t>& candidates,
                            std::vector<int32_t>& chosen) const {
    return {.rows = {{&position, {1}}, {&zero, {1}}, {&zero, {1}}},
            .q = {q.data(), {1, kHeads, kWidth}},
            .weights = {weights.data(), {1, kHeads}},
            .weight_scale = 1,
            .frequencies = {&frequency, {1}},
            .keys = {{keys.data(), {1, kCount, index_key_row_bytes(kWidth)}}, {&zero, {1, 1}}},
            .candidate_use = CandidateUse::build,
            .candidate_block = block,
            .candidates = {candidates.data(), {1, std::ssize(candidates)}},
            .chosen = {chosen.data(), {1, std::ssize(chosen)}}};
  }

  std::vector<bf16> q, weights;
  std::vector<uint8_t> keys;
  std::vector<double> scores;
  int32_t position = kCount - 1, zero = 0;
  float frequency = 0;
};

// No entry of `pool` that was left out is better than one that was chosen.
void expect_best(const std::vector<double>& scores, const std::vector<int32_t>& pool,
                 const std::vector<int32_t>& chosen) {
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  double worst_chosen = 1e30, best_left = -1e30;
  for (int32_t entry : pool) {
    if (std::binary_search(chosen.begin(), chosen.end(), entry)) {
      worst_chosen = std::min(worst_chosen, scores[entry]);
    } else {
      best_left = std::max(best_left, scores[entry]);
    }
  }
  EXPECT_LE(best_left, worst_chosen + 1e-4);
}

TEST(LargeRows, SelectionTakesTheBestInBothLevels) {
  constexpr int64_t kTopK = 512, kBlocks = 100, kBlock = 8;
  const Entries entries;
  on_all_queues([&](Queue& queue) {
    std::vector<int32_t> chosen(kTopK), candidates(kBlocks);
    IndexSelectArgs args = entries.arguments(kBlock, candidates, chosen);
    index_select(queue, args);
    std::vector<int32_t> all(Entries::kCount), blocks(Entries::kCount / kBlock), pool;
    for (int64_t j = 0; j < Entries::kCount; ++j) all[j] = static_cast<int32_t>(j);
    expect_best(entries.scores, all, chosen);

    std::vector<double> best(blocks.size(), -1e30);
    for (size_t b = 0; b < blocks.size(); ++b) blocks[b] = static_cast<int32_t>(b);
    for (int64_t j = 0; j < Entries::kCount; ++j) {
      best[j / kBlock] = std::max(best[j / kBlock], entries.scores[j]);
    }
    best.back() = 1e30;  // the newest entry's block
    expect_best(best, blocks, candidates);
    EXPECT_EQ(candidates.back(), blocks.back());

    for (int32_t block : candidates) {
      for (int64_t i = 0; i < kBlock; ++i) pool.push_back(static_cast<int32_t>(block * kBlock + i));
    }
    args.candidate_use = CandidateUse::use;
    index_select(queue, args);
    expect_best(entries.scores, pool, chosen);
    EXPECT_TRUE(std::includes(pool.begin(), pool.end(), chosen.begin(), chosen.end()));
  });
}

// With several threads they choose together, alone one row's entries are a list.
TEST(LargeRows, SelectionIsTheSameWithAnyNumberOfThreads) {
  constexpr int64_t kTopK = 512, kBlocks = 600, kBlock = 8;
  const Entries entries;
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    std::vector<std::vector<int32_t>> outcomes;
    for (const int threads : {1, 2, 5}) {
      ThreadTeam team(threads);
      Queue queue(team, isa, Arena(64));
      std::vector<int32_t> chosen(kTopK), used(kTopK), candidates(kBlocks);
      IndexSelectArgs args = entries.arguments(kBlock, candidates, chosen);
      index_select(queue, args);
      args.candidate_use = CandidateUse::use;
      args.chosen.data = used.data();
      index_select(queue, args);
      EXPECT_GE(used.back(), 0);
      std::vector<int32_t>& outcome = outcomes.emplace_back(chosen);
      outcome.insert(outcome.end(), used.begin(), used.end());
      outcome.insert(outcome.end(), candidates.begin(), candidates.end());
      EXPECT_EQ(outcome, outcomes.front()) << name_of(isa) << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace cachalot::cpu
