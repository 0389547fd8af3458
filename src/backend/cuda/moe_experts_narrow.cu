#include "backend/cuda/moe_experts_kernel.cuh"

namespace cachalot::cuda {

template void launch_tiles<Pass::gate_up, false>(Queue&, const ExpertsStep&, PassArguments, bool);
template void launch_tiles<Pass::down, false>(Queue&, const ExpertsStep&, PassArguments, bool);

}  // namespace cachalot::cuda
