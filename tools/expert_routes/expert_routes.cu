// What Hopper's tensor cores make of FP4 experts by either way, without the loading of anything:
// docs/kernels/experts.md, "Both routes".
//
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr
//       -DFMT_HEADER_ONLY -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -Isrc
//       tools/expert_routes/expert_routes.cu -o expert_routes
//
// * BF16: a code times its scale in BF16, exactly; the tensor core adds up all of K.
// * FP8: a code and its scale, relative to the row's, in one E4M3 code, exactly (here: scales of
//   twelve neighbouring powers of two); x's scale stands in front of every 32 products, which the
//   tensor core has no place for, so every 32 products are added to FP32 sums by multiply-adds.
//
// Both begin with codes in shared memory, decode them in registers (the A operand) and multiply
// them with N tokens in shared memory; two warpgroups a multiprocessor. Prints TFLOP/s, and how far
// the sums over 512 inputs are from sums in double precision.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "backend/cuda/moe_experts_weights.cuh"
#include "backend/cuda/plan/experts_layout.h"
#include "backend/cuda/ptx/wgmma_bf16_steps.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace {

using namespace cachalot::cuda;

constexpr int kStages = 4, kInputs = 128 * kStages, kThreads = 256;
constexpr int kOctets = 32;  // of eight matrix rows: two warpgroups of two times 64
constexpr int kRows = 8 * kOctets;
constexpr int kSmallestScale = -5, kScales = 12;  // powers of two that E4M3 has room for

// A stage of either route: codes, scales, tokens (rows of 128 bytes, swizzled), scales of tokens.
template <bool fp8, int kN>
struct alignas(1024) Stage {  // atoms of the swizzle begin at multiples of it
  static constexpr int kPanels = fp8 ? 1 : 2;
  static constexpr int kTokenScales = kN / 4 + 4;  // of a lane: its columns, and a pad
  uint8_t tokens[kPanels * kN * 128];
  uint32_t codes[kOctets][32][4];  // [octet][lane][block]
  uint8_t scales[kOctets][8][4];   // [octet][row][block]
  float token_scales[4][4][kTokenScales];
};
template <bool fp8, int kN>
struct Stages {
  Stage<fp8, kN> stage[kStages];
};

// Eight codes as they lie for the FP8 route: magnitudes in the lower three bits of the nibbles, the
// signs of the first four at the top of the bytes, those of the others four bits below.
__host__ uint32_t fp8_word(const uint8_t (&codes)[8]) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    word |= uint32_t{codes[i] & 7u} << (4 * i);
    word |= uint32_t{codes[i]} >> 3 << (8 * (i % 4) + (i < 4 ? 7 : 3));
  }
  return word;
}

// Two words of E4M3 codes. The magnitudes' codes for the smallest scale are 00 08 10 14 18 1C 20
// 24; a power of two more adds 8 to all but the zero.
__device__ void fp8_codes(uint32_t word, uint32_t scale, uint32_t& first, uint32_t& second) {
  const uint32_t low = 0x14100800u + scale * 0x08080800u;
  const uint32_t high = 0x24201C18u + scale * 0x08080808u;
  const uint32_t magnitudes = word & 0x77777777u;
  first = __byte_perm(low, high, magnitudes) | (word & 0x80808080u);
  second = __byte_perm(low, high, magnitudes >> 16) | ((word << 4) & 0x80808080u);
}

template <int kN>
__device__ void add_products(float (&sums)[kN / 2], float (&products)[kN / 2],
                             const float* scales) {
#pragma unroll
  for (int j = 0; j < kN / 8; j += 2) {
    float scale[4];
    if constexpr (kN == 8) {
      const float2 two = *reinterpret_cast<const float2*>(scales);
      scale[0] = two.x, scale[1] = two.y;
    } else {
      const float4 four = *reinterpret_cast<const float4*>(scales + 2 * j);
      scale[0] = four.x, scale[1] = four.y, scale[2] = four.z, scale[3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < 8 && 4 * j + i < kN / 2; ++i)
      sums[4 * j + i] = fmaf(products[4 * j + i], scale[i / 4 * 2 + i % 2], sums[4 * j + i]);
  }
}

// kGroups times 64 matrix rows a warpgroup.
template <bool fp8, int kN, int kGroups>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const Stages<fp8, kN>* from, int rounds, float* out) {
  extern __shared__ uint8_t unaligned[];
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(unaligned));
  auto& stages = *reinterpret_cast<Stages<fp8, kN>*>(unaligned + ((1024 - base % 1024) % 1024));
  for (size_t i = threadIdx.x; i < sizeof(stages) / 16; i += kThreads)
    reinterpret_cast<uint4*>(&stages)[i] = reinterpret_cast<const uint4*>(from)[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4;
  const int octet = thread / 128 * (kOctets / 2) + 2 * warp;
  float sums[kGroups][kN / 2] = {};
  if constexpr (fp8) {
    float products[2][kGroups][kN / 2];
    uint32_t a[2][kGroups][4];
    for (int round = 0; round < rounds; ++round) {
      // Products under way at the end of a loop's body would make the compiler wait for each.
      const float* scales = nullptr;
#pragma unroll
      for (int s = 0; s < kStages; ++s) {
        const auto& stage = stages.stage[s];
        const uint64_t tokens = shared_descriptor(stage.tokens, SharedLayout::swizzle_128, 1024);
        uint32_t words[kGroups][2][4], exponents[kGroups][2];
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = octet + 8 * group + half;
            const uint4 four = *reinterpret_cast<const uint4*>(stage.codes[at][lane]);
            words[group][half][0] = four.x, words[group][half][1] = four.y;
            words[group][half][2] = four.z, words[group][half][3] = four.w;
            exponents[group][half] = *reinterpret_cast<const uint32_t*>(stage.scales[at][lane / 4]);
          }
        }
#pragma unroll
        for (int block = 0; block < 4; ++block) {
          constexpr auto set = [](int b) { return b % 2; };
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              fp8_codes(words[group][half][block],
                        __byte_perm(exponents[group][half], 0, 0x4440 + block),
                        a[set(block)][group][half], a[set(block)][group][2 + half]);
            }
          }
          wgmma_fence();
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
            wgmma_fp8(products[set(block)][group], a[set(block)][group],
                      advance_descriptor(tokens, block * 32), false);
          }
          wgmma_commit();
          if (s + block > 0) {
            wgmma_wait<1>();
#pragma unroll
            for (int group = 0; group < kGroups; ++group) {
              wgmma_hold(products[1 - set(block)][group]);
              add_products<kN>(sums[group], products[1 - set(block)][group], scales);
            }
          }
          scales = stage.token_scales[block][lane % 4];
        }
      }
      wgmma_wait<0>();
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        wgmma_hold(products[1][group]);
        add_products<kN>(sums[group], products[1][group], scales);
      }
    }
  } else {
    Fp4Rows<false> rows[kGroups];
    uint32_t a[2][kGroups][2][4];
    for (int round = 0; round < rounds; ++round) {
      for (int s = 0; s < kStages; ++s) {
        const auto& stage = stages.stage[s];
        const uint64_t tokens = shared_descriptor(stage.tokens, SharedLayout::swizzle_128, 1024);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = octet + 8 * group + half;
            rows[group].load(half, static_cast<uint32_t>(__cvta_generic_to_shared(stage.codes[at])),
                             static_cast<uint32_t>(__cvta_generic_to_shared(stage.scales[at])),
                             lane);
          }
        }
#pragma unroll
        for (int block = 0; block < 4; ++block) {
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
            rows[group].prepare(block);
            rows[group].expand(block, a[block % 2][group]);
          }
          wgmma_fence();
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            const uint64_t b =
                advance_descriptor(tokens, block / 2 * kN * 128 + block % 2 * 64 + step * 32);
#pragma unroll
            for (int group = 0; group < kGroups; ++group)
              wgmma_bf16_step<kN>(sums[group], a[block % 2][group][step], b, true);
          }
          wgmma_commit();
          wgmma_wait<1>();
        }
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) wgmma_hold(sums[group]);
  }
  if (out == nullptr && sums[0][0] != 0.12345f) return;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      const int row = 8 * (octet + 8 * group + i / 2 % 2) + lane / 4;
      const int token = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      out[row * kN + token] = sums[group][i] * (fp8 ? 1.0f : kWeightShift);
    }
  }
}

float e2m1(int code) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
}
float e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float value = exponent == 0 ? std::ldexp(float(mantissa), -9)
                                    : std::ldexp(float(8 + mantissa), exponent - 10);
  return (code & 128) != 0 ? -value : value;
}

// Random matrix and tokens, in both routes' places, and their product in double.
template <int kN>
struct Problem {
  std::vector<double> expected = std::vector<double>(size_t{kRows} * kN);
  Stages<true, kN> fp8{};
  Stages<false, kN> bf16{};

  Problem() {
    std::mt19937 random(kN);
    std::vector<float> matrix(size_t{kRows} * kInputs), tokens(size_t{kN} * kInputs);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int row = 0; row < kRows; ++row) {
      for (int block = 0; block < kInputs / 32; ++block) {
        const int scale = below(kScales);
        auto& here = fp8.stage[block / 4];
        auto& there = bf16.stage[block / 4];
        here.scales[row / 8][row % 8][block % 4] = static_cast<uint8_t>(scale);
        there.scales[row / 8][row % 8][block % 4] =
            static_cast<uint8_t>(127 + kSmallestScale + scale);
        for (int lane = 0; lane < 4; ++lane) {
          uint8_t codes[8];
          uint32_t word = 0;
          for (int i = 0; i < 8; ++i) {
            codes[i] = static_cast<uint8_t>(below(16));
            word |= uint32_t{codes[i]} << (4 * i);
            matrix[size_t{static_cast<unsigned>(row)} * kInputs + block * 32 + lane * 8 + i] =
                std::ldexp(e2m1(codes[i]), kSmallestScale + scale);
          }
          here.codes[row / 8][row % 8 * 4 + lane][block % 4] = fp8_word(codes);
          there.codes[row / 8][row % 8 * 4 + lane][block % 4] = arranged_word(word);
        }
      }
    }
    for (int token = 0; token < kN; ++token) {
      for (int block = 0; block < kInputs / 32; ++block) {
        const int scale = below(7) - 3;
        fp8.stage[block / 4].token_scales[block % 4][token / 2 % 4][token / 8 * 2 + token % 2] =
            std::ldexp(1.0f, scale);
        for (int i = 0; i < 32; ++i) {
          const int code = below(0x78) | below(2) << 7;
          const float value = std::ldexp(e4m3(code), scale);
          tokens[size_t{static_cast<unsigned>(token)} * kInputs + block * 32 + i] = value;
          // Input 8 q + 4 c + j of the block lies at 16 c + 4 q + j.
          put(fp8.stage[block / 4].tokens, token,
              block % 4 * 32 + i / 4 % 2 * 16 + i / 8 * 4 + i % 4)[0] = static_cast<uint8_t>(code);
          // Input 8 c + j + 4 i at 8 j + 2 c + i.
          const int place = i % 4 * 8 + i / 8 * 2 + i / 4 % 2;
          uint32_t bits;
          static_assert(sizeof(bits) == sizeof(value));
          __builtin_memcpy(&bits, &value, sizeof(bits));
          uint8_t* at = put(bf16.stage[block / 4].tokens + block % 4 / 2 * kN * 128, token,
                            block % 2 * 64 + place * 2);
          at[0] = static_cast<uint8_t>(bits >> 16), at[1] = static_cast<uint8_t>(bits >> 24);
        }
      }
    }
    for (int row = 0; row < kRows; ++row) {
      for (int token = 0; token < kN; ++token) {
        double sum = 0;
        for (int i = 0; i < kInputs; ++i)
          sum += double{matrix[size_t(row) * kInputs + i]} * tokens[size_t(token) * kInputs + i];
        expected[size_t(row) * kN + token] = sum;
      }
    }
  }

  // A byte of a token's 128, in the copy engine's swizzle.
  static uint8_t* put(uint8_t* panel, int token, int byte) {
    return panel + token * 128 + ((byte / 16) ^ (token % 8)) * 16 + byte % 16;
  }
};

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Figures {
  double teraflops, error;
};

template <bool fp8, int kN, int kGroups>
Figures measure(const Stages<fp8, kN>& problem, const std::vector<double>& expected,
                int multiprocessors) {
  constexpr int kRounds = 2000, kRuns = 7;
  const auto kernel = multiply<fp8, kN, kGroups>;
  constexpr size_t kShared = sizeof(problem) + 1024;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{kShared}));
  Stages<fp8, kN>* on_device;
  float* out;
  check(cudaMalloc(&on_device, sizeof(problem)));
  check(cudaMalloc(&out, expected.size() * sizeof(float)));
  check(cudaMemcpy(on_device, &problem, sizeof(problem), cudaMemcpyHostToDevice));
  kernel<<<1, kThreads, kShared>>>(on_device, 1, out);
  std::vector<float> sums(expected.size());
  check(cudaMemcpy(sums.data(), out, sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
  double wrong = 0, all = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (kGroups == 1 && i / kN % (kRows / 2) >= 64) continue;  // rows nobody multiplied
    wrong += (sums[i] - expected[i]) * (sums[i] - expected[i]);
    all += expected[i] * expected[i];
  }
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) {
    check(cudaEventRecord(begin));
    kernel<<<multiprocessors, kThreads, kShared>>>(on_device, kRounds, nullptr);
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds);
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  const double products = 2.0 * 128 * kGroups * kN * kInputs * kRounds * multiprocessors;
  check(cudaFree(on_device));
  check(cudaFree(out));
  return {products / (times[kRuns / 2] * 1e-3) * 1e-12, std::sqrt(wrong / all)};
}

template <int kN, int kFp8Groups>
void compare(int multiprocessors) {
  static const Problem<kN> problem;
  const Figures bf16 = measure<false, kN, 2>(problem.bf16, problem.expected, multiprocessors);
  const Figures fp8 = measure<true, kN, kFp8Groups>(problem.fp8, problem.expected, multiprocessors);
  std::printf("%6d  %13.1f  %13.1f  %5.2f  2^%-8.1f  2^%.1f\n", kN, bf16.teraflops, fp8.teraflops,
              fp8.teraflops / bf16.teraflops, std::log2(bf16.error), std::log2(fp8.error));
}

}  // namespace

int main() {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0));
  std::printf("%s\ntokens  BF16, TFLOP/s  FP8, TFLOP/s  ratio  error BF16  FP8\n", device.name);
  compare<8, 2>(device.multiProcessorCount);
  compare<16, 2>(device.multiProcessorCount);
  compare<32, 2>(device.multiProcessorCount);
  compare<64, 1>(device.multiProcessorCount);
  compare<128, 1>(device.multiProcessorCount);
}
