#include "backend/cpu/kernels/matmul_vnni.inc.h"

namespace cachalot::cpu {

const MatmulKernels kVnniInt8Kernels = kInt8Table;

}  // namespace cachalot::cpu
