#include "backend/cpu/kernels/matmul_bf16_dot.inc.h"

namespace cachalot::cpu {

const MatmulKernels kAvx512Bf16MatmulKernels = kTable;

}  // namespace cachalot::cpu
