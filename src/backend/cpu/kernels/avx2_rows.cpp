#include "backend/cpu/kernels/rows.inc.h"

namespace cachalot::cpu {

const RowKernels kAvx2RowKernels = kTable;

}  // namespace cachalot::cpu
