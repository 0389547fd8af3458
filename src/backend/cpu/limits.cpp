#include <string_view>

#include "backend/cpu/kernels/limit_kernels.h"
#include "base/cpu_info.h"

namespace cachalot::cpu {

const LimitKernels& limit_kernels_for(Isa isa) {
  if (isa == Isa::generic) return kGenericLimitKernels;
  if (isa == Isa::avx2) return kAvx2LimitKernels;
  if (isa == Isa::avx512) return kAvx512LimitKernels;
  if (isa == Isa::avx512_bf16) return kAvx512Bf16LimitKernels;
  return kAmxLimitKernels;
}

bool supports(const PeakLoop& loop) {
  if (loop.run == nullptr) return false;
  const bool needs_vnni = loop.run == kAvx512LimitKernels.peaks[1].run;
  return !needs_vnni || __builtin_cpu_supports("avx512vnni");
}

}  // namespace cachalot::cpu
