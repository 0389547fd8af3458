#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/ptx/wgmma_bf16.h"
#include "backend/cuda/ptx/wgmma_fp8.h"
#include "backend/cuda/stopwatch.h"

namespace cachalot::cuda {
namespace {

// The finaliser of SplitMix64: random words by index.
__device__ uint64_t random_word(uint64_t index) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

__global__ void fill(uint64_t* words, int64_t count) {
  wait_for_inputs();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    words[i] = random_word(static_cast<uint64_t>(i));
  }
}

// Little's law: 4.8 TB/s for some 700 ns are 3.4 MB in flight, 25 KB per multiprocessor; 2048
// threads with 8 loads of 16 bytes each ask for ten times that.
constexpr int kInFlight = 8, kReadThreads = 512;

__device__ uint32_t read_sink;

__global__ void read(const uint4* data, int64_t count) {
  wait_for_inputs();
  uint32_t sum = 0;
  const int64_t part = static_cast<int64_t>(kReadThreads) * kInFlight;
  for (int64_t at = blockIdx.x * part + threadIdx.x; at < count; at += gridDim.x * part) {
    uint4 values[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t index = at + i * kReadThreads;
      values[i] = index < count ? data[index] : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      sum ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
    }
  }
  if (sum == 0x12345678u) read_sink = sum;
}

__global__ void copy(uint4* to, const uint4* from, int64_t count) {
  wait_for_inputs();
  const int64_t part = static_cast<int64_t>(kReadThreads) * kInFlight;
  for (int64_t at = blockIdx.x * part + threadIdx.x; at < count; at += gridDim.x * part) {
    uint4 values[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t index = at + i * kReadThreads;
      values[i] = index < count ? __ldcs(from + index) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t index = at + i * kReadThreads;
      if (index < count) __stcs(to + index, values[i]);
    }
  }
}

// Per multiprocessor 128 multiply-adds a cycle with 4 cycles each: 16 chains in 8 warps of each
// quarter are 8 times what that takes.
constexpr int kChains = 16, kFmaThreads = 1024;

__global__ void __launch_bounds__(kFmaThreads) multiply_fp32(int rounds, float* sink) {
  wait_for_inputs();
  float sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float factor = 1 + static_cast<float>(threadIdx.x) * 1e-9f;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], factor, 0.5f);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += sums[i];
  if (sum == 0.12345f) *sink = sum;
}

// The largest product per instruction, as two warpgroups of a block would use it: 128 x 256
// outputs, operands in shared memory, 128 bytes of K a stage.
constexpr int kM = 128, kN = 256, kStageBytes = (kM + kN) * 128, kStages = 4;
constexpr int kProductThreads = 256;

template <bool fp8>
__global__ void __launch_bounds__(kProductThreads, 1) multiply(int rounds, float* sink) {
  extern __shared__ uint8_t unaligned[];
  // Atoms of the 128-byte swizzle begin at multiples of 1024.
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(unaligned));
  uint8_t* tiles = unaligned + ((1024 - base % 1024) % 1024);
  wait_for_inputs();
  // BF16: any sign and mantissa, magnitudes 1/2 to 2; E4M3: 1/8 to 15/8.
  for (int i = static_cast<int>(threadIdx.x); i < kStages * kStageBytes / 8; i += kProductThreads) {
    const uint64_t word = random_word(static_cast<uint64_t>(i) + blockIdx.x * uint64_t{1 << 20});
    const uint64_t value = fp8 ? (word & 0x9f9f9f9f9f9f9f9fu) | 0x2020202020202020u
                               : (word & 0x80ff80ff80ff80ffu) | 0x3f003f003f003f00u;
    reinterpret_cast<uint64_t*>(tiles)[i] = value;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  uint64_t a[kStages], b[kStages];
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    const uint8_t* tile = tiles + stage * kStageBytes;
    a[stage] = shared_descriptor(tile + group * 64 * 128, SharedLayout::swizzle_128, 1024);
    b[stage] = shared_descriptor(tile + kM * 128, SharedLayout::swizzle_128, 1024);
  }
  float d[kN / 2] = {};
  for (int round = 0; round < rounds; ++round) {
    wgmma_fence();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint64_t at_a = advance_descriptor(a[stage], k * 32);
        const uint64_t at_b = advance_descriptor(b[stage], k * 32);
        if constexpr (fp8) {
          wgmma_fp8(d, at_a, at_b, true);
        } else {
          wgmma_bf16<kN>(d, at_a, at_b, true);
        }
      }
      wgmma_commit();
    }
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  wgmma_hold(d);
  if (d[0] == 0.12345f) *sink = d[1];
}

__global__ void nothing() {
  wait_for_inputs();
  let_next_start();
}

// The fastest of some runs, after one that is not counted.
template <class Start>
double best_seconds(Queue& queue, int runs, Start start) {
  TimePoint before, after;
  double best = 1e9;
  for (int run = 0; run <= runs; ++run) {
    before.mark(queue);
    start();
    after.mark(queue);
    const double seconds = after.seconds_since(before);
    if (run > 0) best = std::min(best, seconds);
  }
  return best;
}

std::unique_ptr<void, ReleaseTo> allocate(int64_t bytes) {
  std::unique_ptr<void, ReleaseTo> memory(device_memory().allocate(static_cast<size_t>(bytes)),
                                          {&device_memory()});
  CACHALOT_CHECK(memory != nullptr, "{} bytes on the device", bytes);
  return memory;
}

void measure_memory(Queue& queue, DeviceLimits& limits) {
  constexpr int kRuns = 10;
  const int64_t bytes = limits.buffer_bytes, count = bytes / static_cast<int64_t>(sizeof(uint4));
  const auto from = allocate(bytes), to = allocate(bytes);
  const auto blocks = static_cast<unsigned>(queue.multiprocessors());
  launch(queue, "fill", fill, {.blocks = blocks * 16, .threads = 256},
         static_cast<uint64_t*>(from.get()), bytes / 8);
  // As many blocks as are resident, or as many more as share the work evenly: whichever is faster.
  for (int per_processor : {4, 8, 32}) {
    const LaunchShape shape{.blocks = blocks * static_cast<unsigned>(per_processor),
                            .threads = kReadThreads};
    const double reading =
        best_seconds(queue, kRuns, [&] { read_memory(queue, from.get(), bytes, per_processor); });
    const double copying = best_seconds(queue, kRuns, [&] {
      launch(queue, "copy", copy, shape, static_cast<uint4*>(to.get()),
             static_cast<const uint4*>(from.get()), count);
    });
    const auto size = static_cast<double>(bytes);
    limits.read_bytes_per_second = std::max(limits.read_bytes_per_second, size / reading);
    limits.copy_bytes_per_second = std::max(limits.copy_bytes_per_second, 2 * size / copying);
  }
}

void measure_peaks(Queue& queue, DeviceLimits& limits) {
  constexpr int kRuns = 10;
  const auto sink = allocate(sizeof(float));
  auto* out = static_cast<float*>(sink.get());
  const auto blocks = static_cast<unsigned>(queue.multiprocessors());
  constexpr int kFmaRounds = 1 << 15, kFmaBlocks = 2;
  const double fp32 = best_seconds(queue, kRuns, [&] {
    launch(queue, "multiply_fp32", multiply_fp32,
           {.blocks = blocks * kFmaBlocks, .threads = kFmaThreads}, kFmaRounds, out);
  });
  limits.fp32_per_second = 2.0 * kChains * kFmaRounds * kFmaThreads * kFmaBlocks * blocks / fp32;

  // Some 10 ms, so that filling the tiles is nothing and the clock settles.
  constexpr int kRounds = 4096;
  const LaunchShape shape{
      .blocks = blocks, .threads = kProductThreads, .shared_bytes = kStages * kStageBytes + 1024};
  const double bf16 = best_seconds(
      queue, kRuns, [&] { launch(queue, "multiply", multiply<false>, shape, kRounds, out); });
  const double fp8 = best_seconds(
      queue, kRuns, [&] { launch(queue, "multiply", multiply<true>, shape, kRounds, out); });
  const double bytes_of_k = 128.0 * kStages * kRounds;
  limits.bf16_per_second = 2.0 * kM * kN * (bytes_of_k / 2) * blocks / bf16;
  limits.fp8_per_second = 2.0 * kM * kN * bytes_of_k * blocks / fp8;
}

void measure_launch(Queue& queue, DeviceLimits& limits) {
  constexpr int kKernels = 100, kReplays = 10;
  queue.begin_capture();
  for (int i = 0; i < kKernels; ++i) launch(queue, "nothing", nothing, {.blocks = 132});
  const std::unique_ptr<Graph> graph = queue.end_capture();
  limits.launch_seconds = best_seconds(queue, 5,
                                       [&] {
                                         for (int i = 0; i < kReplays; ++i) queue.launch(*graph);
                                       }) /
                          (kKernels * kReplays);
}

}  // namespace

void read_memory(Queue& queue, const void* data, int64_t bytes, int blocks_per_processor) {
  launch(queue, "read", read,
         {.blocks = static_cast<unsigned>(queue.multiprocessors() * blocks_per_processor),
          .threads = kReadThreads},
         static_cast<const uint4*>(data), bytes / static_cast<int64_t>(sizeof(uint4)));
}

DeviceLimits measure_limits(Queue& queue, int64_t buffer_bytes) {
  DeviceLimits limits{.buffer_bytes = buffer_bytes};
  measure_memory(queue, limits);
  measure_peaks(queue, limits);
  measure_launch(queue, limits);
  return limits;
}

}  // namespace cachalot::cuda
