// Loops that do one thing as fast as a core can: what the operations are measured against, compiled
// once per instruction set like them.
#pragma once

#include <cstdint>

// base/cpu_info.h, which kernel objects must not include: it brings weak symbols.
namespace cachalot {
enum class Isa;
}

namespace cachalot::cpu {

// `rounds` rounds of multiply-adds on values in registers; the results go to `sink` (64 bytes).
struct PeakLoop {
  const char* path = nullptr;  // "fp32_fma", "bf16_dot", "int8_dot", "amx_bf16"
  void (*run)(int64_t rounds, void* sink) = nullptr;
  int64_t operations = 0;  // per round; a multiply-add is two
};

inline constexpr int kMostPeakLoops = 3;

struct LimitKernels {
  // The path the matrix kernels of this instruction set take.
  const char* matmul_path;
  // Reads every byte once, in `streams` (1, 2, 4 or 8) sequences side by side. bytes: a multiple of
  // 4096.
  void (*read)(const void* data, int64_t bytes, int streams, void* sink);
  // Absent ones have no path. A path that is not here is that of a lower instruction set.
  PeakLoop peaks[kMostPeakLoops];
};

extern const LimitKernels kGenericLimitKernels;
extern const LimitKernels kAvx2LimitKernels;
extern const LimitKernels kAvx512LimitKernels;
extern const LimitKernels kAvx512Bf16LimitKernels;
extern const LimitKernels kAmxLimitKernels;

const LimitKernels& limit_kernels_for(Isa isa);

// Whether this machine runs the loop; most need no more than their instruction set.
bool supports(const PeakLoop& loop);

}  // namespace cachalot::cpu
