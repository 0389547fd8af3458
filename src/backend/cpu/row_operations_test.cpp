// What a sequence's operations make of its rows does not depend on how its tokens are cut into
// steps, on threads, or on which pages and slots it got.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/queue.h"
#include "base/cpu_info.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kHeads = 6, kHeadDim = 96, kPairs = 16, kWindow = 9, kRing = 14, kTopK = 5;
constexpr int64_t kIndexHeads = 3, kIndexWidth = 64, kPageTokens = 12, kSlots = 3, kTokens = 61;

// One layer's operands for a whole sequence.
struct Sequence {
  std::vector<bf16> q, kv, index_q, index_weights, wk, norm, key_norm;
  std::vector<float> compressed, gate, sink, frequencies;
};

Sequence random_sequence() {
  std::mt19937 engine(17);
  std::normal_distribution<float> draw;
  const auto bf16s = [&](int64_t n) {
    std::vector<bf16> out(n);
    for (bf16& value : out) value = to_bf16(draw(engine));
    return out;
  };
  const auto floats = [&](int64_t n) {
    std::vector<float> out(n);
    for (float& value : out) value = draw(engine);
    return out;
  };
  Sequence s{.q = bf16s(kTokens * kHeads * kHeadDim),
             .kv = bf16s(kTokens * kHeadDim),
             .index_q = bf16s(kTokens * kIndexHeads * kIndexWidth),
             .index_weights = bf16s(kTokens * kIndexHeads),
             .wk = bf16s(kIndexWidth * kHeadDim),
             .norm = bf16s(kHeadDim),
             .key_norm = bf16s(kIndexWidth),
             .compressed = floats(kTokens * kHeadDim),
             .gate = floats(kTokens * kHeadDim),
             .sink = floats(kHeads)};
  for (int64_t i = 0; i < kPairs; ++i) {
    s.frequencies.push_back(std::pow(10.0f, -static_cast<float>(i) / 5));
  }
  return s;
}

// The caches of one layer; pages in an order of the seed's choosing.
struct Caches {
  Caches(int64_t ratio, uint32_t seed)
      : per_page(kPageTokens / ratio),
        ring(kSlots * kRing * window_row_bytes(kHeadDim)),
        open(kSlots * (ratio + 4) * 2 * kHeadDim),
        latents(kSlots * kPages * per_page * latent_row_bytes(kHeadDim)),
        keys(kSlots * kPages * per_page * index_key_row_bytes(kIndexWidth)),
        table(kSlots * kPages) {
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(seed));
  }
  static constexpr int64_t kPages = kTokens / kPageTokens + 1;

  int64_t per_page;
  std::vector<uint8_t> ring;
  std::vector<float> open;
  std::vector<uint8_t> latents, keys;
  std::vector<int32_t> table;
};

struct Outcome {
  std::vector<uint16_t> o;
  std::vector<int32_t> chosen;
  bool operator==(const Outcome&) const = default;
};

template <class T>
View<const T> part(const std::vector<T>& all, int64_t first, int64_t count, int64_t width) {
  return {all.data() + first * width, {count, width}};
}

// Tokens first .. first + count - 1 as one step.
void run_step(Queue& queue, const Sequence& s, Caches& caches, int64_t ratio, int32_t slot,
              int64_t first, int64_t count, Outcome& outcome) {
  std::vector<int32_t> positions(count), slots(count, slot), first_rows(count, 0);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  const StepRows rows{
      {positions.data(), {count}}, {slots.data(), {count}}, {first_rows.data(), {count}}};
  const View<const float> frequencies{s.frequencies.data(), {kPairs}};
  const View<const int32_t> table{caches.table.data(), {kSlots, Caches::kPages}};
  const int64_t pages = kSlots * Caches::kPages;
  const PagedRows<uint8_t> latents{
      {caches.latents.data(), {pages, caches.per_page, latent_row_bytes(kHeadDim)}}, table};
  const PagedRows<uint8_t> keys{
      {caches.keys.data(), {pages, caches.per_page, index_key_row_bytes(kIndexWidth)}}, table};
  const View<uint8_t> ring{caches.ring.data(), {kSlots, kRing, window_row_bytes(kHeadDim)}};
  const int64_t q_width = kHeads * kHeadDim;
  std::vector<bf16> q(s.q.begin() + first * q_width, s.q.begin() + (first + count) * q_width);
  std::vector<uint8_t> window(count * window_row_bytes(kHeadDim));
  std::vector<bf16> latent(count * kHeadDim), o(count * q_width);
  std::vector<int32_t> chosen(count * kTopK);
  const View<uint8_t> window_rows{window.data(), {count, window_row_bytes(kHeadDim)}};
  const View<bf16> heads{q.data(), {count, kHeads, kHeadDim}};
  const View<int32_t> choice{chosen.data(), {count, kTopK}};

  prepare_query(queue, {.rows = rows,
                        .frequencies = frequencies,
                        .q = heads,
                        .kv = part(s.kv, first, count, kHeadDim),
                        .window_rows = window_rows});
  CompressKvArgs compress{.rows = rows,
                          .ratio = ratio,
                          .kv = part(s.compressed, first, count, kHeadDim),
                          .norm = {s.norm.data(), {kHeadDim}},
                          .norm_eps = 1e-20f,
                          .frequencies = frequencies,
                          .latent = {latent.data(), {count, kHeadDim}},
                          .latents = latents};
  if (ratio > 1) {
    compress.gate = part(s.gate, first, count, kHeadDim);
    compress.open_rows = {caches.open.data(), {kSlots, ratio + 4, 2, kHeadDim}};
  }
  compress_kv(queue, compress);
  index_keys(queue, {.rows = rows,
                     .ratio = ratio,
                     .latent = {latent.data(), {count, kHeadDim}},
                     .weight = {s.wk.data(), {kIndexWidth, kHeadDim}},
                     .norm = {s.key_norm.data(), {kIndexWidth}},
                     .norm_eps = 1e-20f,
                     .frequencies = frequencies,
                     .keys = keys});
  index_select(queue, {.rows = rows,
                       .ratio = ratio,
                       .q = {s.index_q.data() + first * kIndexHeads * kIndexWidth,
                             {count, kIndexHeads, kIndexWidth}},
                       .weights = part(s.index_weights, first, count, kIndexHeads),
                       .weight_scale = 0.1f,
                       .frequencies = frequencies,
                       .keys = {keys.rows, table},
                       .chosen = choice});
  sparse_attention(queue, {.rows = rows,
                           .q = heads,
                           .window_rows = window_rows,
                           .ring = ring,
                           .window = kWindow,
                           .chosen = choice,
                           .latents = {latents.rows, table},
                           .sink = {s.sink.data(), {kHeads}},
                           .frequencies = frequencies,
                           .scale = 0.1f,
                           .o = {o.data(), {count, kHeads, kHeadDim}}});
  write_window(queue, {.rows = rows, .window_rows = window_rows, .ring = ring});
  for (bf16 value : o) outcome.o.push_back(value.bits);
  outcome.chosen.insert(outcome.chosen.end(), chosen.begin(), chosen.end());
}

Outcome run_all(Queue& queue, const Sequence& s, int64_t ratio, int64_t chunk, uint32_t seed) {
  Caches caches(ratio, seed);
  Outcome outcome;
  for (int64_t first = 0; first < kTokens; first += chunk) {
    run_step(queue, s, caches, ratio, static_cast<int32_t>(seed % kSlots), first,
             std::min(chunk, kTokens - first), outcome);
  }
  return outcome;
}

TEST(RowOperations, DoNotDependOnChunksThreadsOrPages) {
  const Sequence sequence = random_sequence();
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    for (const int64_t ratio : {1, 2, 3, 4}) {
      ThreadTeam team(1);
      Queue queue(team, isa, Arena(1024));
      const Outcome whole = run_all(queue, sequence, ratio, kTokens, 0);
      for (const int threads : {1, 2, 3}) {
        ThreadTeam other_team(threads);
        Queue other(other_team, isa, Arena(1024));
        for (const int64_t chunk : {1, 2, 3, 7, 61}) {
          EXPECT_EQ(run_all(other, sequence, ratio, chunk, static_cast<uint32_t>(chunk)), whole)
              << name_of(isa) << ", ratio " << ratio << ", " << threads << " threads, chunks of "
              << chunk;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cachalot::cpu
