#include "backend/cuda/moe_experts_kernel.cuh"

namespace cachalot::cuda {

template void launch_tiles<Pass::down, true>(Queue&, const ExpertsStep&, PassArguments, bool);

}  // namespace cachalot::cuda
