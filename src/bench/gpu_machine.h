// What a GPU allows, as the machine of a report.
#pragma once

#include "backend/cuda/limits.h"
#include "bench/machine.h"

namespace cachalot::bench {

// About a second, and twice the buffer of free device memory.
Machine measure_gpu(const cuda::DeviceInfo& device);

Machine machine_of(const cuda::DeviceInfo& device, const cuda::DeviceLimits& limits);

}  // namespace cachalot::bench
