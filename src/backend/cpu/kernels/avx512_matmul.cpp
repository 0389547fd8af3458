#include "backend/cpu/kernels/matmul.inc.h"

namespace cachalot::cpu {

const MatmulKernels kAvx512MatmulKernels = kTable;

}  // namespace cachalot::cpu
