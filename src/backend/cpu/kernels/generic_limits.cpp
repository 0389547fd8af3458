#include "backend/cpu/kernels/limits.inc.h"

namespace cachalot::cpu {

const LimitKernels kGenericLimitKernels = {
    .matmul_path = "fp32_fma", .read = read, .peaks = {{"fp32_fma", fp32_fma, kFp32Operations}}};

}  // namespace cachalot::cpu
