#include "backend/cpu/kernels/matmul.inc.h"

namespace cachalot::cpu {

const MatmulKernels kAvx2MatmulKernels = kTable;

}  // namespace cachalot::cpu
