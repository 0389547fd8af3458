// The CPU's matrix products at the released sizes, against what this machine allows: packed bytes
// per second beside a plain read loop (few tokens), multiply-adds per second beside an FMA loop
// (many). The best iteration counts: a shared machine only ever makes one slower.
#include <benchmark/benchmark.h>
#include <time.h>

#include <functional>
#include <random>
#include <vector>

#include "backend/cpu/queue.h"

namespace cachalot::cpu {
namespace {

// One thread is timed by the processor time it gets, so that others on the machine cost it only
// cache and memory; several threads by the wall clock.
double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double seconds_of(int threads, const std::function<void()>& work) {
  const double start = now(threads);
  work();
  return now(threads) - start;
}

double best_of(int rounds, int threads, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) best = std::min(best, seconds_of(threads, work));
  return best;
}

std::vector<uint8_t> random_bytes(int64_t count) {
  std::vector<uint8_t> out(count);
  uint64_t state = 88172645463325252u;
  for (uint8_t& byte : out) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<uint8_t>(state) & 0xB7;  // no E4M3 NaN, no large BF16
  }
  return out;
}

// Adds up 32-byte words: four loads in flight, an addition each.
__attribute__((target("avx2"), noinline)) uint64_t add_up(const uint64_t* data, size_t count) {
  typedef uint64_t Vector __attribute__((vector_size(32), aligned(8), may_alias));
  const auto* p = reinterpret_cast<const Vector*>(data);
  Vector sums[4] = {};
  for (size_t i = 0; i < count / 4; i += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[j] += p[i + j];
  }
  const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// Bytes per second of reading 256 MB.
double read_limit(ThreadTeam& team) {
  static const std::vector<uint64_t> data(int64_t{32} << 20, 1);
  std::vector<uint64_t> sums(team.size() * 8);
  const double best = best_of(20, team.size(), [&] {
    team.run([&](const TeamMember& member) {
      const size_t part = data.size() / member.count() / 16 * 16;
      sums[member.index() * 8] = add_up(data.data() + part * member.index(), part);
    });
  });
  benchmark::DoNotOptimize(sums.data());
  return static_cast<double>(data.size()) * 8 / best;
}

// Multiply-adds per second of twelve independent chains of 8-wide FMAs.
__attribute__((target("avx2,fma"), noinline)) void fma_chains(int64_t rounds, float* out) {
  typedef float Vector __attribute__((vector_size(32)));
  Vector sums[12];
  for (int j = 0; j < 12; ++j) sums[j] = Vector{} + static_cast<float>(j);  // or they are one
  Vector a = Vector{} + 1.0001f, b = Vector{} + 0.9999f;
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = sums[j] * a + b;
  }
  for (int j = 0; j < 12; ++j) out[0] += sums[j][0];
}

double fma_limit(ThreadTeam& team) {
  constexpr int64_t kRounds = 2000000;
  std::vector<float> out(team.size() * 16);
  const double best = best_of(10, team.size(), [&] {
    team.run([&](const TeamMember& member) { fma_chains(kRounds, &out[member.index() * 16]); });
  });
  benchmark::DoNotOptimize(out.data());
  return 12.0 * 8 * kRounds * team.size() / best;
}

struct Limits {
  double read, fma;
};

Limits limits(int threads) {
  static Limits known[65] = {};
  if (known[threads].read == 0) {
    ThreadTeam team(threads);
    known[threads] = {read_limit(team), fma_limit(team)};
  }
  return known[threads];
}

// Arguments: tokens, threads, instruction set.
void measure(benchmark::State& state, int64_t bytes, int64_t weights,
             const std::function<void(Queue&, int64_t tokens)>& work) {
  const auto isa = static_cast<Isa>(state.range(2));
  if (!supports(isa)) return state.SkipWithError("not on this machine");
  ThreadTeam team(static_cast<int>(state.range(1)));
  Queue queue(team, isa, Arena(64));
  work(queue, state.range(0));
  double best = 1e9;
  for (auto _ : state) {
    const double seconds = seconds_of(team.size(), [&] { work(queue, state.range(0)); });
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  const Limits limit = limits(team.size());
  const double read = static_cast<double>(bytes) / best;
  const double fma = static_cast<double>(weights * state.range(0)) / best;
  state.SetLabel(std::string(name_of(isa)));
  state.counters["GB/s"] = read / 1e9;
  state.counters["%read"] = 100 * read / limit.read;
  state.counters["GFLOP/s"] = 2 * fma / 1e9;
  state.counters["%fma"] = 100 * fma / limit.fma;
}

void linear_of(benchmark::State& state, const DenseMatrix& weight, int64_t bytes) {
  measure(state, bytes, weight.rows * weight.columns, [&](Queue& queue, int64_t tokens) {
    static const std::vector<uint8_t> x = random_bytes(512 * 5120 * 2);
    static std::vector<float> y(512 * 32768);
    linear(queue, {.x = {reinterpret_cast<const bf16*>(x.data()), {tokens, weight.columns}},
                   .weight = weight,
                   .norm = {},
                   .y = {},
                   .y_f32 = {y.data(), {tokens, weight.rows}}});
  });
}

void fp8_wq_b(benchmark::State& state) {
  constexpr int64_t kRows = 32768, kColumns = 1280;
  static const std::vector<uint8_t> codes = random_bytes(kRows * kColumns);
  static const std::vector<float> scales(kRows * kColumns / 1024, 0x1p-6f);
  linear_of(state,
            {.rows = kRows,
             .columns = kColumns,
             .codes = {codes.data(), {kRows, kColumns}},
             .scales = {scales.data(), {kRows / 32, kColumns / 32}},
             .values = {}},
            kRows * kColumns);
}

void bf16_head(benchmark::State& state) {
  constexpr int64_t kRows = 16384, kColumns = 5120;
  // Random bits would hold denormals and NaN, which some CPUs multiply slowly: 0.5 <= |value| < 2.
  static const std::vector<uint8_t> values = [] {
    std::vector<uint8_t> bytes = random_bytes(kRows * kColumns * 2);
    for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = (bytes[i] & 0x80) | 0x3F;
    return bytes;
  }();
  linear_of(state,
            {.rows = kRows,
             .columns = kColumns,
             .codes = {},
             .scales = {},
             .values = {reinterpret_cast<const bf16*>(values.data()), {kRows, kColumns}}},
            kRows * kColumns * 2);
}

// Six of twelve experts per token and the shared one.
void fp4_experts(benchmark::State& state) {
  constexpr int64_t kDim = 5120, kWidth = 2304, kExperts = 12, kChosen = 6;
  constexpr int64_t kWeights = kDim * kWidth;
  static const std::vector<uint8_t> codes = random_bytes(kExperts * 3 * kWeights / 2);
  static const std::vector<uint8_t> scales(kExperts * 3 * kWeights / 32, 118);
  static const std::vector<uint8_t> shared = random_bytes(3 * kWeights);
  static const std::vector<float> tiles(kWeights / 1024, 0x1p-9f);
  const auto fp4 = [&](int64_t index, int64_t rows, int64_t columns) -> Fp4Matrix {
    return {rows,
            columns,
            {codes.data() + index * kWeights / 2, {rows, columns / 2}},
            {scales.data() + index * kWeights / 32, {rows, columns / 32}}};
  };
  const auto fp8 = [&](int64_t index, int64_t rows, int64_t columns) -> DenseMatrix {
    return {rows,
            columns,
            {shared.data() + index * kWeights, {rows, columns}},
            {tiles.data(), {rows / 32, columns / 32}},
            {}};
  };
  std::vector<ExpertMatrices> experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.push_back(
        {fp4(3 * e, kWidth, kDim), fp4(3 * e + 1, kDim, kWidth), fp4(3 * e + 2, kWidth, kDim)});
  }
  const int64_t used = std::min(kExperts, kChosen * state.range(0));
  measure(state, used * 3 * (kWeights / 2 + kWeights / 32) + 3 * kWeights,
          3 * kWeights * (kChosen + 1), [&](Queue& queue, int64_t tokens) {
            static const std::vector<uint8_t> x = random_bytes(512 * kDim * 2);
            std::vector<int32_t> ids;
            for (int64_t i = 0; i < tokens * kChosen; ++i) ids.push_back(i * 5 % kExperts);
            const std::vector<float> weights(ids.size(), 0.25f);
            std::vector<bf16> y(tokens * kDim);
            moe_experts(queue, {.x = {reinterpret_cast<const bf16*>(x.data()), {tokens, kDim}},
                                .ids = {ids.data(), {tokens, kChosen}},
                                .weights = {weights.data(), {tokens, kChosen}},
                                .experts = experts,
                                .shared = {fp8(0, kWidth, kDim), fp8(1, kDim, kWidth),
                                           fp8(2, kWidth, kDim)},
                                .limit = 10,
                                .y = {y.data(), {tokens, kDim}}});
          });
}

void sizes(benchmark::internal::Benchmark* b) {
  const int cpus = static_cast<int>(available_cpus().size());
  for (Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    for (int threads : {1, cpus}) {
      for (int64_t tokens : {1, 4, 128}) b->Args({tokens, threads, static_cast<int64_t>(isa)});
    }
  }
  b->ArgNames({"tokens", "threads", "isa"})->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(fp8_wq_b)->Apply(sizes);
BENCHMARK(fp4_experts)->Apply(sizes);
BENCHMARK(bf16_head)->Apply(sizes);

}  // namespace
}  // namespace cachalot::cpu
