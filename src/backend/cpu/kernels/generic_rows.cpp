#include "backend/cpu/kernels/rows.inc.h"

namespace cachalot::cpu {

const RowKernels kGenericRowKernels = kTable;

}  // namespace cachalot::cpu
