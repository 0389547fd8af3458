// The limit loops every instruction set has (limit_kernels.h): reading, FP32 multiply-adds.
#pragma once

#include "backend/cpu/kernels/limit_kernels.h"
#include "backend/cpu/kernels/simd.h"

// The value may have changed, for all the compiler knows: keeps it from taking work out of a loop,
// or from seeing that chains compute the same.
#define CACHALOT_OPAQUE(value) __asm__ volatile("" : "+x"(value))

namespace cachalot::cpu {
namespace {

typedef int32_t I32Memory __attribute__((vector_size(kLanes * 4), may_alias, aligned(1)));

template <int kStreams>
void read_streams(const uint8_t* data, int64_t bytes, void* sink) {
  constexpr int64_t kVector = kLanes * 4, kStep = 4 * kVector;
  // Far enough ahead to cover the memory's latency at a core's share of its bandwidth.
  constexpr int64_t kAhead = 2048;
  const int64_t part = bytes / kStreams;
  I32 sums[kStreams] = {};
  for (int64_t at = 0; at < part; at += kStep) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* p = data + s * part + at;
      for (int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(p + kAhead + line);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kStep; i += kVector)
        sums[s] ^= *reinterpret_cast<const I32Memory*>(p + i);
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] ^= sums[s];
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}

void read(const void* data, int64_t bytes, int streams, void* sink) {
  const auto* p = static_cast<const uint8_t*>(data);
  if (streams == 1) return read_streams<1>(p, bytes, sink);
  if (streams == 2) return read_streams<2>(p, bytes, sink);
  if (streams == 4) return read_streams<4>(p, bytes, sink);
  return read_streams<8>(p, bytes, sink);
}

// Enough independent sums to hide an instruction's latency, few enough for the registers.
#if defined(__AVX512F__)
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif

#if defined(__AVX2__)
void fp32_fma(int64_t rounds, void* sink) {
  F32 sums[kChains] = {};
#pragma GCC unroll 24
  for (auto& sum : sums) CACHALOT_OPAQUE(sum);
  F32 a = splat(0.5f), b = splat(0.25f);
  CACHALOT_OPAQUE(a);
  CACHALOT_OPAQUE(b);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = fma(sums[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) sums[0] += sums[i];
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}
constexpr int64_t kFp32Operations = 2 * kChains * kLanes;
#else
// Two four-lane halves a vector, two instructions a multiply-add: half the chains fill the sixteen
// registers.
void fp32_fma(int64_t rounds, void* sink) {
  constexpr int kHalves = 10;
  typedef float F32Half __attribute__((vector_size(16)));
  F32Half sums[kHalves] = {};
#pragma GCC unroll 24
  for (auto& sum : sums) CACHALOT_OPAQUE(sum);
  F32Half a = {0.5f, 0.5f, 0.5f, 0.5f}, b = {0.25f, 0.25f, 0.25f, 0.25f};
  CACHALOT_OPAQUE(a);
  CACHALOT_OPAQUE(b);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (int i = 0; i < kHalves; ++i) sums[i] = sums[i] * a + b;
  }
  for (int i = 1; i < kHalves; ++i) sums[0] += sums[i];
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}
constexpr int64_t kFp32Operations = 2 * 10 * 4;
#endif

}  // namespace
}  // namespace cachalot::cpu
