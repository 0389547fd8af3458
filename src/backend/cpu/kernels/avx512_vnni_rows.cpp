#include "backend/cpu/kernels/rows.inc.h"

namespace cachalot::cpu {

const RowKernels kVnniRowKernels = kTable;

}  // namespace cachalot::cpu
