#include "backend/cpu/kernels/matmul_tiles.inc.h"

namespace cachalot::cpu {

const MatmulKernels kAmxMatmulKernels = kTable;

}  // namespace cachalot::cpu
