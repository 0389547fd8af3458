#include "backend/cpu/kernels/matmul_int8.inc.h"

namespace cachalot::cpu {

const MatmulKernels kGenericInt8Kernels = kInt8Table;

}  // namespace cachalot::cpu
