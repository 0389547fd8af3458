#include "backend/cuda/moe_experts_kernel.cuh"

namespace cachalot::cuda {

template void launch_tiles<Pass::gate_up, true>(Queue&, const ExpertsStep&, PassArguments, bool);

}  // namespace cachalot::cuda
