#include "backend/cpu/kernels/rows.inc.h"

namespace cachalot::cpu {

const RowKernels kAvx512RowKernels = kTable;

}  // namespace cachalot::cpu
