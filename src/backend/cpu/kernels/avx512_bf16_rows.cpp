#include "backend/cpu/kernels/rows.inc.h"

namespace cachalot::cpu {

const RowKernels kAvx512Bf16RowKernels = kTable;

}  // namespace cachalot::cpu
