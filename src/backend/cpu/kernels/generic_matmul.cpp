#include "backend/cpu/kernels/matmul.inc.h"

namespace cachalot::cpu {

const MatmulKernels kGenericMatmulKernels = kTable;

}  // namespace cachalot::cpu
