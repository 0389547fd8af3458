#include "backend/cuda/moe_experts_wide.cuh"

namespace cachalot::cuda {

template void launch_wide<Pass::down, Kind::many>(Queue&, const ExpertsStep&, PassArguments, bool);

}  // namespace cachalot::cuda
